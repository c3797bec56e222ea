"""One adapter per real Kafka client, so that the same test bodies run with each."""
