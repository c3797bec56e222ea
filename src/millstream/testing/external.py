"""Another Kafka in the place of a test's broker: what a client can do with both."""

from millstream.testing.kafka import Kafka


class ExternalKafka(Kafka):
    """It runs already, at `bootstrap`, and goes on when the tests are over."""
