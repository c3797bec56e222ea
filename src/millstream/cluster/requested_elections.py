"""Elections and reassignments that a request or a node asks for, on any node of a cluster.

Each computes one partition's next state with `election` and writes it with its version and
the epochs of the nodes it relies on. Requests only start and cancel a reassignment here; the
controller completes it when every new replica is in sync.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from millstream.cluster import election, znodes
from millstream.cluster.controller import log_unclean_election
from millstream.cluster.election import Nodes
from millstream.cluster.membership import Membership
from millstream.cluster.state import NO_LEADER, PartitionState, Reassignment, TopicState
from millstream.cluster.stores.store import Check, CoordinationFailed, NotApplied, Operation, Put
from millstream.errors import KafkaCode, KafkaError
from millstream.model import TopicPartition

_ATTEMPTS: Final = 10


class Elections:
    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    async def elect_preferred(self, where: TopicPartition) -> None:
        """The first replica leads. Raises KafkaError if it cannot, or already does."""
        await self._change(where, self._preferred)

    async def elect_uncleanly(self, where: TopicPartition) -> None:
        """Any live replica leads, whatever is lost. Raises KafkaError if there is a leader."""
        before, elected = await self._change(where, self._unclean)
        log_unclean_election(where, before, elected)

    async def give_up(self, where: TopicPartition, replica: int) -> None:
        """Remove a damaged replica from the ISR and the leadership. Raises KafkaError if no other
        replica can lead; then nothing has changed."""

        def decide(state: PartitionState) -> PartitionState:
            changed = election.given_up(state, replica, self._nodes())
            if changed is None:
                raise KafkaError(
                    KafkaCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no other replica can lead"
                )
            return changed

        await self._change(where, decide)

    async def reassign(
        self, where: TopicPartition, target: Sequence[int], *, may_resize: bool = True
    ) -> None:
        """Start moving a partition to other replicas. Raises KafkaError."""

        def decide(state: PartitionState) -> PartitionState:
            if not may_resize and len(target) != len(election.original_replicas(state)):
                raise KafkaError(
                    KafkaCode.INVALID_REPLICATION_FACTOR, "the number of replicas must not change"
                )
            return self._reassigned(state, target)

        await self._change(where, decide)

    async def cancel(self, where: TopicPartition) -> None:
        """Cancel a reassignment and go back. Raises KafkaError."""
        await self._change(where, self._cancelled)

    def reassignments(self) -> list[Reassignment]:
        """The reassignments in progress."""
        return [
            Reassignment(TopicPartition(topic.name, number), state)
            for topic in self._membership.image.topics.values()
            for number, state in enumerate(topic.partitions)
            if state.adding or state.removing
        ]

    # -- the next state -----------------------------------------------------------------

    def _nodes(self) -> Nodes:
        brokers = self._membership.image.brokers
        stopping = {broker.id for broker in brokers.values() if broker.is_stopping}
        return Nodes(live=brokers.keys(), stopping=stopping)

    def _preferred(self, state: PartitionState) -> PartitionState:
        changed = election.preferred(state, self._nodes())
        if changed is not None:
            return changed
        if state.leader == election.target_replicas(state)[0]:
            raise KafkaError(KafkaCode.ELECTION_NOT_NEEDED, "the preferred replica leads already")
        raise KafkaError(
            KafkaCode.PREFERRED_LEADER_NOT_AVAILABLE, "the preferred replica is not in sync"
        )

    def _unclean(self, state: PartitionState) -> PartitionState:
        if state.leader != NO_LEADER:
            raise KafkaError(KafkaCode.ELECTION_NOT_NEEDED, "the partition has a leader")
        changed = election.uncleanly_elected(state, self._nodes())
        if changed is None:
            raise KafkaError(
                KafkaCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica of the partition is alive"
            )
        return changed

    def _reassigned(self, state: PartitionState, target: Sequence[int]) -> PartitionState:
        problem = None
        if not target:
            problem = "a partition needs a replica"
        elif len(set(target)) != len(target):
            problem = f"a node is named twice in {list(target)}"
        elif not self._membership.image.brokers.keys() >= set(target):
            problem = f"{list(target)} names a node that is not there"
        if problem is not None:
            raise KafkaError(KafkaCode.INVALID_REPLICA_ASSIGNMENT, problem)
        changed = election.reassigned(state, target)
        return election.arrived(changed, self._nodes()) or changed

    def _cancelled(self, state: PartitionState) -> PartitionState:
        if not (state.adding or state.removing):
            raise KafkaError(KafkaCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing to cancel")
        changed = election.cancelled(state, self._nodes())
        if changed is None:
            former = ", ".join(map(str, election.original_replicas(state)))
            raise KafkaError(
                KafkaCode.INVALID_REPLICA_ASSIGNMENT,
                "no former replica is in sync any more: let the move end, or start one of the nodes"
                f" {former} and cancel again when it has caught up",
            )
        return changed

    # -- writing ----------------------------------------------------------------------

    async def _change(
        self, where: TopicPartition, decide: Callable[[PartitionState], PartitionState]
    ) -> tuple[PartitionState, PartitionState]:
        """The states before and after."""
        for _ in range(_ATTEMPTS):
            state = self._membership.image.partition(where.topic, where.partition)
            if state is None:
                raise KafkaError(
                    KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {where}"
                )
            changed = decide(state)
            if changed == state:
                return state, state
            try:
                await self._write(where, state, changed)
                return state, changed
            except NotApplied:
                await self._read_again(where)
            except CoordinationFailed as error:
                raise KafkaError(KafkaCode.REQUEST_TIMED_OUT, str(error)) from error
        raise KafkaError(KafkaCode.REQUEST_TIMED_OUT, "too much is changed at the same moment")

    async def _write(
        self, where: TopicPartition, before: PartitionState, after: PartitionState
    ) -> None:
        membership = self._membership
        topic = membership.image.topics[where.topic]
        after = replace(after, writer_token=membership.next_token())
        path = znodes.partition_state_path(where.topic, where.partition)
        data = znodes.encode_partition(after, membership.image.controller_epoch, topic.topic_id)
        brokers = membership.image.brokers
        trusted = {*after.isr, after.leader} & brokers.keys()
        operations: list[Operation] = [
            *membership.guards(),
            *(Check(znodes.epoch_path(each), brokers[each].epoch) for each in sorted(trusted)),
        ]
        if (before.replicas, before.adding, before.removing) != (
            after.replicas,
            after.adding,
            after.removing,
        ):
            operations.append(self._topic_write(topic, where.partition, after))
        await membership.store.commit([*operations, Put(path, data, before.version)])
        await self._read_again(where)

    def _topic_write(self, topic: TopicState, number: int, after: PartitionState) -> Operation:
        partitions = list(topic.partitions)
        partitions[number] = after
        data = znodes.encode_topic(replace(topic, partitions=partitions))
        version = self._membership.observer.topic_version(topic.name)
        return Put(znodes.topic_path(topic.name), data, version)

    async def _read_again(self, where: TopicPartition) -> None:
        try:
            await self._membership.observer.read_topic(where.topic)
            await self._membership.observer.read_incarnations()
        except CoordinationFailed as error:
            raise KafkaError(KafkaCode.REQUEST_TIMED_OUT, str(error)) from error
