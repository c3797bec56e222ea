import pytest

from millstream.broker.requests.config_view import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    resource_text,
)


@pytest.mark.parametrize(
    ("resource_type", "name", "text"),
    [
        (TOPIC, "orders", "topic 'orders'"),
        (TOPIC, "a\nb", r"topic 'a\nb'"),
        (BROKER, "4", "node 4"),
        (BROKER, "", "all nodes"),
        (BROKER_LOGGER, "4", "loggers of node 4"),
        (GROUP, "billing", "group 'billing'"),
        (CLIENT_METRICS, "all", "client metrics 'all'"),
    ],
)
def test_whose_options_they_are_is_said_in_words(resource_type: int, name: str, text: str) -> None:
    assert resource_text(resource_type, name) == text
