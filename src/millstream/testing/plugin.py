"""Fixtures for pytest, found through the wheel's entry point.

`kafka` is one broker for the whole test run, `kafka_bootstrap` its address, and
`make_topic` creates topics with unique names, so that tests share the broker without
seeing each other. Nothing starts, and little is imported, until a test asks for one.
"""

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from millstream.testing.broker import Broker


class MakeTopic(Protocol):
    def __call__(self, *, partitions: int = 1, configs: dict[str, str] | None = None) -> str: ...


@pytest.fixture(scope="session")
def kafka() -> "Iterator[Broker]":
    """A running broker, shared by all tests of the run."""
    from millstream.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def kafka_bootstrap(kafka: "Broker") -> str:
    """The address for `bootstrap.servers`."""
    return kafka.bootstrap


@pytest.fixture
def make_topic(kafka: "Broker", request: pytest.FixtureRequest) -> Iterator[MakeTopic]:
    """A function that creates a topic and returns its name; deleted after the test."""
    made: list[str] = []

    def make(*, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
        # The test's name in front, so that a log line tells where a topic came from.
        readable = "".join(c if c.isalnum() else "-" for c in request.node.name)[:60]
        name = f"{readable}-{uuid.uuid4().hex[:12]}"
        kafka.create_topic(name, partitions=partitions, configs=configs)
        made.append(name)
        return name

    yield make
    for name in made:
        kafka.delete_topic(name)
