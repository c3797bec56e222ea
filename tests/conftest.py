"""Options and fixtures that all tests share."""

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support.apache_kafka import ApacheKafka
from tests.support.jars import kafka_directory
from tests.support.node import MillstreamNode
from tests.support.spark_connector import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No test fails by chance: the same examples in every run, and no limits of time, which a busy
# machine breaks. `--hypothesis-profile exploring` looks for new examples.
_UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("exploring", _UNHURRIED)
settings.register_profile("repeatable", _UNHURRIED, derandomize=True)
settings.load_profile("repeatable")

# Hundreds of tests start a process: modules are compiled once for all of them, outside of the tree.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("PYTHONPYCACHEPREFIX", f"{tempfile.gettempdir()}/millstream-compiled")

# Groups of tests by the fixtures that are made once for all of them.
_SHARED = {
    "spark": {"shared_spark"},
    "zookeeper": {"zookeeper_of_spark", "zookeeper_of_debian"},
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against-kafka",
        action="store_true",
        help="run the interop tests against Apache Kafka, to prove the tests themselves",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers take one group of tests after another, those that may take longest first."""
    if not hasattr(config, "workerinput"):
        return
    seconds_max: Counter[str] = Counter()
    for item in items:
        group = _group_of(item)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
            seconds_max[group] = max(seconds_max[group], _seconds_max(item))
    items.sort(key=lambda item: -seconds_max.get(_group_of(item) or "", _seconds_max(item)))


def _group_of(item: pytest.Item) -> str | None:
    """Tests of a group run one after another: they share something costly, or would disturb
    each other."""
    marker = item.get_closest_marker("xdist_group")
    if marker is not None:
        return str(marker.args[0])
    if item.get_closest_marker("root") is not None:
        # A network namespace that is made while another test has a disk mounted keeps that one
        # mounted, and the test would wait in vain to see it gone.
        return "root"
    fixtures = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    for group, shared in _SHARED.items():
        if not shared.isdisjoint(fixtures):
            return group
    scopes = {found[-1].scope for found in fixtures.values()}
    is_shared = bool(scopes & {"module", "class"})
    return f"{item.path.parent.name}/{item.path.stem}" if is_shared else None


def _seconds_max(item: pytest.Item) -> int:
    if item.get_closest_marker("slow") is None:
        return 0
    marker = item.get_closest_marker("timeout")
    return 1 if marker is None else int(marker.args[0])


def pytest_collection_finish(session: pytest.Session) -> None:
    """What a fresh machine has to fetch is fetched before the time of any test counts."""
    if session.config.getoption("collectonly") or os.environ.get("MILLSTREAM_SKIP_JAVA") == "1":
        return
    fetches = []
    if any(item.get_closest_marker("java") for item in session.items):
        fetches.append(kafka_directory)
    if any("shared_spark" in getattr(item, "fixturenames", ()) for item in session.items):
        fetches.append(connector_jars)
    for fetch in fetches:
        # Whoever needs it tries again, and fails with the reason.
        with contextlib.suppress(Exception):
            fetch()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("root") is not None and os.geteuid() != 0:
        pytest.skip("only root can mount disks and make networks")


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


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """Spark, started once. Each package of tests takes a session of its own from it."""
    from tests.support.spark_session import start_spark

    session = start_spark(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
