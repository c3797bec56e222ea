"""What brokers in one process and in several have in common."""

from collections.abc import Collection

import pytest

from millstream.testing.brokers import Brokers, Replicas

TOPIC = "orders"
Views = dict[int, int]


class Told(Brokers):
    """Brokers that name a leader each, and other ones with every look."""

    def __init__(self, *looks: Views) -> None:
        super().__init__(brokers=3, replication=None, topics=None, settings=None, storage="memory")
        self._looks = list(looks)
        self._now: Views = looks[0]

    @property
    def is_running(self) -> bool:
        return True

    @property
    def running(self) -> list[int]:
        return [1, 2, 3]

    def start(self) -> None: ...
    def close(self) -> None: ...
    def stop(self, node_id: int) -> None: ...
    def heal_network(self) -> None: ...
    def _start_one(self, node_id: int) -> None: ...

    def _alive(self) -> Collection[int]:
        return self.running

    def _reaching(self) -> list[int]:
        self._now = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        return sorted(self._now)

    def _replicas_known_to(self, node_id: int) -> dict[tuple[str, int], Replicas]:
        return {(TOPIC, 0): Replicas(self._now[node_id], frozenset({1, 2, 3}), (1, 2, 3))}


def test_a_leader_is_named_when_all_brokers_name_it() -> None:
    brokers = Told({1: 2, 3: 2}, {1: 2, 3: -1}, {1: -1, 3: -1}, {1: 1, 3: 2}, {1: 1, 3: 1})
    assert brokers.leader(TOPIC, 0) == 1


def test_a_leader_that_is_gone_at_the_second_look_was_one() -> None:
    brokers = Told({1: 2, 3: 2}, {1: 2, 3: 2}, {1: -1, 3: -1})
    assert brokers.leader(TOPIC, 0) == 2


def test_an_unknown_partition_is_named() -> None:
    with pytest.raises(ValueError, match="there is no partition orders-1"):
        Told({1: 1}).leader(TOPIC, 1)
