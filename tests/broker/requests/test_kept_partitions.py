"""Partitions are shown anew exactly when something about them has changed."""

from dataclasses import replace

from millstream.broker.requests.kept_partitions import KeptPartitions
from millstream.cluster.state import PartitionState, TopicState
from millstream.model import NO_TOPIC_ID
from millstream.wire.apis.metadata import MetadataPartition

NODES = frozenset({1, 2})


def topic(name: str = "t", partitions: int = 3) -> TopicState:
    state = PartitionState(leader=1, leader_epoch=0, isr=(1, 2), replicas=(1, 2), version=0)
    return TopicState(name, NO_TOPIC_ID, [state] * partitions)


class Shown:
    """Counts how often the partitions of a topic had to be shown."""

    def __init__(self, kept: KeptPartitions, shown: TopicState) -> None:
        self._kept = kept
        self._topic = shown
        self.count = 0

    def leaders(self, nodes: frozenset[int] = NODES) -> list[int]:
        return [one.leader_id for one in self._kept.of(self._topic, nodes, self._show)]

    def _show(self) -> list[MetadataPartition]:
        self.count += 1
        return [
            MetadataPartition(
                error_code=0,
                partition_index=index,
                leader_id=state.leader,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                offline_replicas=[],
            )
            for index, state in enumerate(self._topic.partitions)
        ]


def test_partitions_are_kept_while_nothing_changes() -> None:
    shown = Shown(KeptPartitions(), topic())
    assert [shown.leaders() for _ in range(3)] == [[1, 1, 1]] * 3
    assert shown.count == 1


def test_a_changed_state_is_shown() -> None:
    state = topic()
    shown = Shown(KeptPartitions(), state)
    shown.leaders()
    state.partitions[1] = replace(state.partitions[1], leader=2, leader_epoch=1, version=1)
    assert shown.leaders() == [1, 2, 1]
    state.partitions.append(state.partitions[1])
    assert shown.leaders() == [1, 2, 1, 2]


def test_other_nodes_are_shown() -> None:
    shown = Shown(KeptPartitions(), topic())
    shown.leaders()
    shown.leaders(frozenset({2}))
    assert shown.count == 2


def test_what_is_kept_is_bounded() -> None:
    kept = KeptPartitions(partitions_max=7)
    first, second, third = (Shown(kept, topic(name)) for name in "abc")
    for each in (first, second, first, second):
        each.leaders()
    assert (first.count, second.count) == (1, 1)
    third.leaders()
    third.leaders()
    assert third.count == 1
    first.leaders()
    assert first.count == 2
