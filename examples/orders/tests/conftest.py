from collections.abc import Iterator
from typing import Any

import pytest
from orders import Topics
from running import RunningService


@pytest.fixture
def topics(make_topic: Any) -> Topics:
    return Topics(make_topic(partitions=2), make_topic(), make_topic())


@pytest.fixture
def service(kafka: Any, topics: Topics) -> Iterator[RunningService]:
    # The names of topics are unique in each test: so is the group.
    config = kafka.client_config("confluent")
    running = RunningService(config, topics, group=f"of-{topics.orders}")
    yield running
    running.close()
