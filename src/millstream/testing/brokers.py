"""Several brokers of a test, in this process or in others: what both kinds have in common."""

import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from millstream.cluster.state import NO_LEADER
from millstream.testing.data_folder import check_storage
from millstream.testing.started import StartedKafka

_WAIT_SECONDS_MAX: Final = 60.0
_LOOK_EVERY_SECONDS: Final = 0.01
# A test's group should not wait for members that may come; small internal topics start sooner.
_SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "replica.fetch.backoff.ms": "50",
}
_CHOSEN: Final = {
    *("listeners", "listener.security.protocol.map", "inter.broker.listener.name"),
    *("log.dirs", "log.dir", "node.id", "broker.id", "zookeeper.connect"),
}


@dataclass(frozen=True, slots=True)
class Replicas:
    """Of one partition; `leader` is -1 while there is none."""

    leader: int
    assigned: frozenset[int]
    in_sync: tuple[int, ...]


class Brokers(StartedKafka):
    """Nodes 1, 2, 3 and so on. `settings` are options of all, by Kafka's names."""

    def __init__(
        self,
        *,
        brokers: int,
        replication: int | None,
        topics: Mapping[str, int] | None,
        settings: Mapping[str, str] | None,
        storage: str,
    ) -> None:
        super().__init__()
        if brokers < 1:
            raise ValueError(f"a cluster has at least one broker, not {brokers}")
        replicas = min(3, brokers) if replication is None else replication
        if not 1 <= replicas <= brokers:
            raise ValueError(f"replication is between 1 and {brokers}, not {replicas}")
        check_storage(storage)
        self._settings = {**_SETTINGS, **_replicated(replicas), **(settings or {})}
        for name in sorted(_CHOSEN & self._settings.keys()):
            raise ValueError(f"the cluster chooses {name} of its brokers: leave it out")
        self._topics = dict(topics or {})
        self._storage = storage
        self.ids: tuple[int, ...] = tuple(range(1, brokers + 1))
        # Chosen at a broker's first start.
        self._ports: dict[int, int] = dict.fromkeys(self.ids, 0)

    @property
    @abstractmethod
    def running(self) -> list[int]: ...

    @abstractmethod
    def stop(self, node_id: int) -> None: ...

    @abstractmethod
    def heal_network(self) -> None: ...

    @abstractmethod
    def _start_one(self, node_id: int) -> None: ...

    @abstractmethod
    def _alive(self) -> Collection[int]:
        """The nodes that know each other."""

    @abstractmethod
    def _reaching(self) -> list[int]:
        """The running brokers that reach the coordination store."""

    @abstractmethod
    def _replicas_known_to(self, node_id: int) -> dict[tuple[str, int], Replicas]:
        """Of every partition, as one broker knows them."""

    # -- start and stop ---------------------------------------------------------------

    def _start_all(self) -> None:
        for node_id in self.ids:
            self._start_one(node_id)
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        self._wait_for_each_other()
        self._create_missing_topics(self._topics)

    def restart(self, node_id: int) -> None:
        """Start a broker that does not run, on its port and with its data; one that runs is
        stopped first. It may take a moment until it is back in sync."""
        if node_id not in self._ports:
            raise ValueError(f"there is no broker {node_id}; there are {list(self.ids)}")
        if node_id in self.running:
            self.stop(node_id)
        self._start_one(node_id)

    def repair(self) -> None:
        """Everything runs and is in sync again, whatever a test has done."""
        self.heal_network()
        for node_id in self.ids:
            if node_id not in self.running:
                self._start_one(node_id)
        self._wait_for_each_other()
        self.wait_in_sync()

    def _check_running(self, node_id: int) -> int:
        if node_id not in self.running:
            raise ValueError(f"broker {node_id} does not run; {self.running} do")
        return node_id

    # -- looking ----------------------------------------------------------------------

    def leader(self, topic: str, partition: int) -> int:
        """The broker that leads; waits until all that reach the coordination store name it, so
        that a client learns of it whichever of them it asks."""
        self._partition(topic, partition)
        key = (topic, partition)
        named: set[int] = set()

        def agree() -> bool:
            views = [self._replicas_known_to(node_id) for node_id in self._reaching()]
            named.clear()
            named.update(view[key].leader if key in view else NO_LEADER for view in views)
            return len(named) == 1 and named <= set(self.running)

        self._wait(agree, f"{topic}-{partition} has a leader")
        return named.pop()

    def in_sync(self, topic: str, partition: int) -> tuple[int, ...]:
        """The in-sync replicas."""
        return self._partition(topic, partition).in_sync

    def wait_in_sync(self) -> None:
        """Wait until every replica of every partition is in sync."""
        self._wait(
            lambda: all(one.assigned == set(one.in_sync) for one in self._replicas().values()),
            "all replicas are in sync",
        )

    def _replicas(self) -> dict[tuple[str, int], Replicas]:
        return self._replicas_known_to(self._one_reaching())

    def _one_reaching(self) -> int:
        """A broker that reaches the coordination store; waits for one."""
        if not self.running:
            raise RuntimeError("no broker of the cluster runs")
        found: list[int] = []

        def look() -> bool:
            found.extend(self._reaching()[:1])
            return bool(found)

        self._wait(look, "a broker is a member")
        return found[0]

    def _partition(self, topic: str, partition: int) -> Replicas:
        found = self._replicas().get((topic, partition))
        if found is None:
            raise ValueError(f"there is no partition {topic}-{partition}")
        return found

    def _wait_for_each_other(self) -> None:
        self._wait(lambda: set(self._alive()) == set(self.ids), "the brokers know each other")

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        ends_at = time.monotonic() + _WAIT_SECONDS_MAX
        while not is_so():
            if time.monotonic() > ends_at:
                raise TimeoutError(f"not within {_WAIT_SECONDS_MAX:.0f} s: {what}")
            time.sleep(_LOOK_EVERY_SECONDS)


def _replicated(replicas: int) -> dict[str, str]:
    """Options for so many replicas of everything."""
    names = (
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
    )
    return {
        **dict.fromkeys(names, str(replicas)),
        "transaction.state.log.min.isr": str(min(replicas, 2)),
    }
