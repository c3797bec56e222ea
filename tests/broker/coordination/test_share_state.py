"""Share groups in a cluster: the leader, the group's coordinator and the share coordinator may be
three nodes, and each of them may die."""

import contextlib
import uuid
from collections.abc import Iterator

import pytest

from millstream.errors import KafkaCode
from millstream.testing import Cluster
from tests.support.raw_client import RawClient
from tests.support.share_member import (
    ACCEPT,
    RELEASE,
    ShareMember,
    create_topic,
    leader_address,
    produce,
    set_group_options,
    topic_id,
)
from tests.support.waiting import wait_until

LONG_MS = 20_000
SETTINGS = {"share.coordinator.state.topic.num.partitions": "3"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def name(cluster: Cluster) -> Iterator[str]:
    """A topic, and a group of the same name that starts at its beginning."""
    name = f"q-{uuid.uuid4().hex[:8]}"
    with RawClient(any_of(cluster)) as client:
        create_topic(client, name, replicas=3)
        topic_id(client, name)
        set_group_options(client, name, share_auto_offset_reset="earliest")
    yield name
    cluster.repair()


def any_of(cluster: Cluster) -> str:
    """The address of a node that runs."""
    return cluster.bootstrap.split(",")[cluster.running[0] - 1]


def send(cluster: Cluster, name: str, *sizes: int) -> None:
    with RawClient(any_of(cluster)) as client:
        address = leader_address(client, name)
    with RawClient(address) as leader:
        produce(leader, name, *sizes)


def new_member(cluster: Cluster, name: str) -> ShareMember:
    members: list[ShareMember] = []

    def is_connected() -> bool:
        """For a moment after a node has died, others still name it as the leader."""
        with contextlib.suppress(ConnectionError):
            members.append(ShareMember(any_of(cluster), name, name))
        return bool(members)

    wait_until(is_connected, "a leader that answers")
    members[0].join()
    return members[0]


def first_ranges(member: ShareMember) -> list[tuple[int, int, int]]:
    found: list[list[tuple[int, int, int]]] = []

    def is_found() -> bool:
        found.append(member.fetch(wait_ms=1_000).ranges)
        return bool(found[-1])

    wait_until(is_found, "records")
    return found[-1]


@pytest.mark.parametrize("attempt", range(3))
def test_acknowledgements_are_kept_wherever_the_coordinators_are(
    cluster: Cluster, name: str, attempt: int
) -> None:
    send(cluster, name, 10)
    with new_member(cluster, name) as member:
        assert member.fetch(wait_ms=LONG_MS).ranges == [(0, 9, 1)]
        assert member.acknowledge((0, 3, [ACCEPT]), (6, 6, [RELEASE])) is KafkaCode.NONE
        assert member.fetch(wait_ms=LONG_MS).ranges == [(6, 6, 2)]


@pytest.mark.parametrize("victim", [1, 2, 3])
def test_what_was_acknowledged_survives_any_node(cluster: Cluster, name: str, victim: int) -> None:
    """One of them leads the partition, one coordinates the group, and one keeps its state."""
    send(cluster, name, 10)
    with new_member(cluster, name) as member:
        member.fetch(wait_ms=LONG_MS)
        assert member.acknowledge((2, 4, [ACCEPT]), (6, 6, [RELEASE])) is KafkaCode.NONE
        cluster.wait_in_sync()
        cluster.kill(victim)
    with new_member(cluster, name) as again:
        counts: dict[int, int] = {}
        # What the first member gives back may become available a moment later.
        while len(counts) < 7:
            for first, last, count in first_ranges(again):
                counts.update(dict.fromkeys(range(first, last + 1), count))
        assert set(counts) == {0, 1, 5, 6, 7, 8, 9}
        assert counts[6] == 2
        rest = [(n, n, [ACCEPT]) for n in sorted(counts)]
        assert again.acknowledge(*rest) is KafkaCode.NONE
        send(cluster, name, 1)
        assert first_ranges(again) == [(10, 10, 1)]


def test_a_former_leader_is_told_to_look_for_the_new_one(cluster: Cluster, name: str) -> None:
    send(cluster, name, 10)
    with new_member(cluster, name) as member:
        member.fetch(wait_ms=LONG_MS)
        cluster.wait_in_sync()
        leader = cluster.leader(name, 0)
        cluster.stop(leader)
        cluster.restart(leader)
        with pytest.raises((ConnectionError, AssertionError)):
            assert member.acknowledge((0, 9, [ACCEPT])) is KafkaCode.NONE
    with new_member(cluster, name) as again:
        got: set[int] = set()
        while len(got) < 10:
            for first, last, _ in first_ranges(again):
                got.update(range(first, last + 1))
        assert got == set(range(10))
