"""What tests share: real Apache Kafka, its tools, the Java client, a Millstream process."""
