"""Log lines on their way into a topic: following files, and made-up traffic to try things with.

No Kafka client, no Spark, no clock and no printing here; the commands `ship` and `loadgen`
bring those.
"""
