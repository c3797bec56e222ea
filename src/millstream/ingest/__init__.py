"""Log lines before they reach a topic: following files, and generated traffic.

`tail` follows a file through rotation, `shipping_state` records what is acknowledged, `lines`
splits bytes into lines; `traffic` invents a web site, `log_lines` and `bad_lines` its logs.
Uses no Kafka client, no Spark, no clock and no output; the commands `ship` and `loadgen` add
those.
"""
