"""Options and fixtures that all tests share."""

from collections.abc import Iterator

import pytest

from tests.support.apache_kafka import ApacheKafka
from tests.support.node import MillstreamNode


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against-kafka",
        action="store_true",
        help="run the interop tests against Apache Kafka, to prove the tests themselves",
    )


@pytest.fixture(scope="session")
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The broker under test: a Millstream process, or Apache Kafka with --against-kafka."""
    data_dir = tmp_path_factory.mktemp("node") / "data"
    if request.config.getoption("--against-kafka"):
        with ApacheKafka(data_dir) as kafka:
            yield kafka.bootstrap
    else:
        with MillstreamNode(data_dir, "--dev") as node:
            yield node.bootstrap
