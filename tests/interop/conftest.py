"""The broker under test: a Millstream process, or Apache Kafka with --against-kafka."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.apache_kafka import ApacheKafka
from tests.support.node import MillstreamNode


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    data_dir = tmp_path_factory.mktemp("interop") / "data"
    if request.config.getoption("--against-kafka"):
        with ApacheKafka(data_dir) as kafka:
            yield kafka.bootstrap
    else:
        with MillstreamNode(data_dir, "--dev") as node:
            yield node.bootstrap
