"""ZooKeeper servers: the jars of PySpark and those of Debian."""

from collections.abc import Iterator

import pytest

from tests.support.zookeeper import debian_jars, spark_jars, zookeeper_server


@pytest.fixture(scope="session")
def zookeeper_of_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with zookeeper_server(tmp_path_factory.mktemp("zookeeper"), jars=spark_jars()) as server:
        yield server.address


@pytest.fixture(scope="session")
def zookeeper_of_debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with zookeeper_server(tmp_path_factory.mktemp("zookeeper"), jars=debian_jars()) as server:
        yield server.address
