"""Fixtures for pytest, found through the wheel's entry point.

`kafka` is one broker per session (each worker of pytest-xdist has its own), `kafka_bootstrap` its
address, and `make_topic` creates topics with unique names, so that tests share the broker without
seeing each other. A test with the marker `millstream` gets another one, with other options.
`kafka_cluster` is three brokers.
Nothing starts, and little is imported, until a test asks for it.
"""

import json
import os
import re
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from millstream.testing.broker import Broker
    from millstream.testing.clock import MovableClock
    from millstream.testing.cluster import Cluster
    from millstream.testing.external import ExternalKafka
    from millstream.testing.faults import Faults
    from millstream.testing.topic import Topic

_BOOTSTRAP = "KAFKA_BOOTSTRAP_SERVERS"
_MARKER_OPTIONS = (
    "settings", "config", "security", "storage", "topics", "registry", "brokers", "isolated",
)  # fmt: skip
# Where data is kept that is not removed.
_KEPT_IN = "MILLSTREAM_KEPT_IN"
_CURRENT = pytest.StashKey["CurrentKafka"]()
_CLUSTER = pytest.StashKey["SharedCluster"]()
_BEGAN = pytest.StashKey[float]()


class MakeTopic(Protocol):
    def __call__(
        self, *, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> "Topic": ...


class CurrentKafka:
    """The broker of the test that runs: the shared one, started when it is first used, or the
    test's own. Fixtures of every scope have this one object."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._shared: Broker | ExternalKafka | None = None
        self._own: Broker | Cluster | None = None
        self._address_before = os.environ.get(_BOOTSTRAP)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.broker, name)

    @property
    def broker(self) -> "Broker | Cluster | ExternalKafka":
        if self._own is not None:
            return self._own
        if self._shared is None:
            self._shared = self._start_shared()
            os.environ[_BOOTSTRAP] = self._shared.bootstrap
        return self._shared

    @property
    def is_running(self) -> bool:
        return self._own is not None or self._shared is not None

    def _start_shared(self) -> "Broker | ExternalKafka":
        address = self._config.getoption("--millstream-external")
        if address:
            from millstream.testing.external import ExternalKafka

            return ExternalKafka(address)
        broker = _new_broker(_placed({}, self._config))
        broker.start()
        return broker

    def begin_own(self, options: dict[str, Any]) -> None:
        own = _new_cluster(options) if "brokers" in options else _new_broker(options)
        own.start()
        self._own = own
        os.environ[_BOOTSTRAP] = own.bootstrap

    def end_own(self) -> None:
        if self._own is not None:
            own, self._own = self._own, None
            self._restore_address()
            own.close()

    def start_if_stopped(self) -> None:
        """A test has stopped the shared broker: the next one wants it."""
        from millstream.testing.broker import Broker

        if isinstance(self._shared, Broker) and not self._shared.is_running:
            self._shared.start()

    def close(self) -> None:
        from millstream.testing.broker import Broker

        shared, self._shared = self._shared, None
        self._restore_address()
        if isinstance(shared, Broker):
            shared.close()

    def _restore_address(self) -> None:
        before = self._address_before if self._shared is None else self._shared.bootstrap
        if before is None:
            os.environ.pop(_BOOTSTRAP, None)
        else:
            os.environ[_BOOTSTRAP] = before


class SharedCluster:
    """The cluster that tests share. A test finds only topics of fixtures that outlive it."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        # Topics that were there when a fixture of a wider scope was ready, by fixture.
        self._kept: dict[Any, set[str]] = {}

    def keep_topics_of(self, fixture: Any) -> None:
        if self._cluster.is_running:
            self._kept[fixture] = self._topics() - self._all_kept()

    def end(self, fixture: Any) -> None:
        gone = self._kept.pop(fixture, set())
        if gone and self._cluster.is_running:
            self._delete(gone & self._topics())

    def clean(self) -> None:
        """After a test: everything runs, and its topics are gone."""
        if self._cluster.is_running:
            self._cluster.repair()
            self._delete(self._topics() - self._all_kept())

    def _all_kept(self) -> set[str]:
        return set().union(*self._kept.values())

    def _topics(self) -> set[str]:
        # Groups and transactions live in topics of the cluster's own.
        return {name for name in self._cluster.topic_names() if not name.startswith("__")}

    def _delete(self, names: set[str]) -> None:
        for name in names:
            self._cluster.delete_topic(name)


def _placed(options: dict[str, Any], config: pytest.Config) -> dict[str, Any]:
    """The options, and where the command line wants the data."""
    placed = {"storage": config.getoption("--millstream-storage"), **options}
    if config.getoption("--millstream-keep"):
        folder = tempfile.mkdtemp(prefix="broker-", dir=os.environ[_KEPT_IN])
        placed["data_dir"] = Path(folder)
    return placed


def _new_broker(options: dict[str, Any]) -> "Broker":
    from millstream.testing.broker import Broker

    return Broker(**options)


def _new_cluster(options: dict[str, Any]) -> "Cluster":
    from millstream.testing.cluster import Cluster

    return Cluster(**options)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("millstream", "Millstream: a Kafka broker for tests")
    group.addoption(
        "--millstream-storage",
        choices=["memory", "disk"],
        default="memory",
        help="Where brokers keep their data.",
    )
    group.addoption(
        "--millstream-external",
        metavar="HOST:PORT",
        default=None,
        help="Run the tests against this Kafka instead. Tests that need more than a client are "
        "skipped, and say so.",
    )

    group.addoption(
        "--millstream-keep",
        action="store_true",
        help="Keep the data of brokers after the run, and say where it is.",
    )
    group.addoption(
        "--millstream-trace",
        metavar="FILE",
        default=None,
        help="Append every request that the brokers see to this file: JSON, one in each line, with "
        "the test that it belongs to.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "millstream(config={...}, security='sasl_ssl', storage='disk', topics={...}, "
        "registry=True, brokers=3): "
        "the test's `kafka` is another broker or cluster, with these options",
    )
    config.stash[_CURRENT] = CurrentKafka(config)
    if config.getoption("--millstream-keep") and _KEPT_IN not in os.environ:
        # Workers of pytest-xdist inherit it.
        os.environ[_KEPT_IN] = tempfile.mkdtemp(prefix="millstream-kept-")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.getoption("--millstream-keep"):
        terminalreporter.write_line(f"Millstream kept its data in {os.environ[_KEPT_IN]}")


# -- brokers -----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def kafka(pytestconfig: pytest.Config) -> Iterator[Any]:
    """A running broker: the one that tests share, or the test's own if it has the marker
    `millstream`. Child processes find it in KAFKA_BOOTSTRAP_SERVERS."""
    current = pytestconfig.stash[_CURRENT]
    yield current
    current.close()


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka: Any) -> str:
    """The address of the shared broker, for `bootstrap.servers`."""
    address: str = kafka.bootstrap
    return address


@pytest.fixture(scope="session")
def kafka_cluster(pytestconfig: pytest.Config) -> "Iterator[Cluster]":
    """Three brokers, shared by the tests that ask for them. After each, brokers that it has
    killed start again, the network is whole, and its topics are gone; those that fixtures of a
    wider scope created stay as long as these."""
    if pytestconfig.getoption("--millstream-external"):
        pytest.skip("--millstream-external: the test wants brokers that it can kill")
    with _new_cluster(_placed({}, pytestconfig)) as cluster:
        pytestconfig.stash[_CLUSTER] = SharedCluster(cluster)
        yield cluster


@pytest.hookimpl(hookwrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if fixturedef.scope != "function" and _CLUSTER in request.config.stash:
        request.config.stash[_CLUSTER].keep_topics_of(fixturedef)


def pytest_fixture_post_finalizer(fixturedef: Any, request: pytest.FixtureRequest) -> None:
    if _CLUSTER in request.config.stash:
        request.config.stash[_CLUSTER].end(fixturedef)


@pytest.fixture(scope="session")
def schema_registry(kafka: Any) -> Iterator[str]:
    """The URL of a schema registry that keeps its schemas in the shared broker."""
    from millstream.testing.registry import RegistryThread

    # A real Kafka may have a registry already.
    topic = f"_schemas-{uuid.uuid4().hex[:12]}"
    # At the end, `kafka` may be the one of the last test.
    shared = kafka.broker
    registry = RegistryThread(shared, topic=topic)
    registry.start()
    yield registry.url
    registry.stop()
    shared.delete_topic(topic)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_BEGAN] = time.monotonic()
    marker = item.get_closest_marker("millstream")
    fixtures = getattr(item, "fixturenames", ())
    if marker is None and "kafka_clock" in fixtures:
        # Time only goes forward: the next test would live in the future.
        marker = pytest.mark.millstream().mark
    makes_topic = "make_topic" in fixtures and "kafka_cluster" not in fixtures
    if marker is None or not ("kafka" in fixtures or makes_topic):
        return
    if "kafka_bootstrap" in fixtures:
        pytest.fail("kafka_bootstrap is the shared broker's; use kafka.bootstrap with this marker")
    if "schema_registry" in fixtures:
        pytest.fail("schema_registry is the shared broker's; use kafka.registry_url here")
    if item.config.getoption("--millstream-external"):
        pytest.skip("--millstream-external: the test wants another broker than the shared one")
    item.config.stash[_CURRENT].begin_own(_options(marker, item.config))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    current = item.config.stash[_CURRENT]
    current.end_own()
    current.start_if_stopped()
    if "kafka_cluster" in getattr(item, "funcargs", {}):
        item.config.stash[_CLUSTER].clean()


def _append_trace(file: Path, item: pytest.Item, brokers: list[Any]) -> None:
    """The requests since the test began."""
    began = item.stash.get(_BEGAN, 0.0)
    seen = [one for each in brokers for one in _requests_of(each) if one.seen_at >= began]
    lines = [json.dumps({"test": item.nodeid, **asdict(one)}) + "\n" for one in seen]
    # One write: workers of pytest-xdist share the file.
    with file.open("a") as out:
        out.write("".join(lines))


def _requests_of(kafka: Any) -> list[Any]:
    """None of another Kafka: what it sees is not ours to know."""
    return kafka.requests() if hasattr(kafka, "requests") else []


def _options(marker: pytest.Mark, config: pytest.Config) -> dict[str, Any]:
    unknown = set(marker.kwargs) - set(_MARKER_OPTIONS)
    if marker.args or unknown:
        raise pytest.UsageError(
            f"the marker millstream takes {', '.join(_MARKER_OPTIONS)}, not "
            f"{', '.join(sorted(unknown)) or 'arguments without a name'}"
        )
    options = _placed(dict(marker.kwargs), config)
    if not options.pop("isolated", True):
        raise pytest.UsageError("the marker millstream always isolates: leave out isolated=False")
    changed = {**options.pop("config", {}), **options.pop("settings", {})}
    return {**options, "settings": {name: str(value) for name, value in changed.items()}}


# -- parts of a broker -------------------------------------------------------------------


@pytest.fixture
def make_topic(request: pytest.FixtureRequest) -> Iterator[MakeTopic]:
    """A function that creates a topic with a unique name; it is deleted after the test, if the
    test has not done that. It is its own name: clients take it as it is. The topic is in
    `kafka_cluster` if the test has that, and in `kafka` otherwise."""
    made: list[str] = []
    is_of_cluster = "kafka_cluster" in request.fixturenames
    kafka: Any = request.getfixturevalue("kafka_cluster" if is_of_cluster else "kafka")

    def make(*, partitions: int = 1, configs: dict[str, str] | None = None) -> "Topic":
        # The test's name in front, so that a log line tells where a topic came from.
        readable = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60].strip("-") or "test"
        name = f"{readable}-{uuid.uuid4().hex[:12]}"
        topic: Topic = kafka.create_topic(name, partitions=partitions, configs=configs)
        made.append(name)
        return topic

    yield make
    # Those of the cluster go with all other topics of the test.
    if made and not is_of_cluster:
        kafka.start_if_stopped()
        left = set(kafka.topic_names())
        for name in made:
            if name in left:
                kafka.delete_topic(name)


@pytest.fixture
def kafka_clock(kafka: Any) -> "MovableClock":
    """The clock of a broker for this test alone."""
    return _node(kafka).clock


@pytest.fixture
def kafka_faults(kafka: Any) -> "Iterator[Faults]":
    """Faults of the broker; cleared after the test."""
    faults = _node(kafka).faults
    yield faults
    faults.clear()


def _node(kafka: Any) -> "Broker | Cluster":
    from millstream.testing.external import ExternalKafka

    if isinstance(kafka.broker, ExternalKafka):
        pytest.skip("--millstream-external: no clock and no faults there")
    node: Broker | Cluster = kafka.broker
    return node


# -- when a test fails -------------------------------------------------------------------


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failed test shows what the broker knows: topics, and the last requests."""
    outcome: Any = yield
    report: pytest.TestReport = outcome.get_result()
    if report.when != "call":
        return
    current = item.config.stash[_CURRENT]
    cluster = getattr(item, "funcargs", {}).get("kafka_cluster")
    trace = item.config.getoption("--millstream-trace")
    if trace:
        brokers = [current.broker] if current.is_running else []
        _append_trace(Path(trace), item, [*brokers, cluster])
    if not report.failed:
        return
    from millstream.testing.report import describe

    if "kafka" in getattr(item, "fixturenames", ()) and current.is_running:
        report.sections.append(("Millstream", describe(current.broker)))
    if cluster is not None:
        report.sections.append(("Millstream cluster", describe(cluster)))
