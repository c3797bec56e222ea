"""Copies groups to ZooKeeper after their changes are committed, for tools that read them there.

Listens to every record that is applied, in normal operation and in a replay. So a node that
becomes the coordinator of a group writes all of it. Nothing waits for the mirror.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from millstream.broker.coordination.shards import Shards, partition_for
from millstream.broker.node.state import NodeState
from millstream.cluster.joining import Session
from millstream.cluster.mirror import (
    MirroredMember,
    changes,
    consumers_tree,
    read_group,
    write_group,
)
from millstream.cluster.state import ClusterImage
from millstream.cluster.stores.store import Check, CoordinationFailed, NotApplied
from millstream.cluster.znodes import partition_state_path
from millstream.coordinators.codecs.changes import Change
from millstream.coordinators.codecs.embedded import decode_assignment, decode_subscription
from millstream.coordinators.consumer.group import ConsumerGroup, topics_of
from millstream.coordinators.decision import Env
from millstream.coordinators.groups.machine import GROUPS
from millstream.coordinators.groups.state import Group, ShardState
from millstream.coordinators.journal import Machine, ShardStatus
from millstream.coordinators.share.group import ShareGroup
from millstream.coordinators.streams.group import StreamsGroup
from millstream.errors import KafkaError
from millstream.model import OFFSETS_TOPIC

GroupShards = Shards[ShardState, Change, Env]

log = logging.getLogger(__name__)

# Commits at a shorter interval than this are written together.
_PAUSE_SECONDS: Final = 0.2


class ConsumersMirror:
    """`session` returns the session with ZooKeeper, which changes when the node rejoins."""

    def __init__(
        self, node: NodeState, shards: Callable[[], GroupShards], session: Callable[[], Session]
    ) -> None:
        self._node = node
        self._shards = shards
        self._session = session
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        # What this node has written of each group, and in which leader epoch.
        self._known: dict[str, tuple[int, dict[str, bytes]]] = {}
        self._problem = ""
        # Groups that cannot be copied as they are. Each was logged, and waits for its next change.
        self._left_out: set[str] = set()

    def machine(self) -> Machine[ShardState, Change, Env]:
        """The group machine, which reports every applied record to this mirror."""
        return replace(GROUPS, apply=self._apply, end_transaction=self._end_transaction)

    def _apply(self, state: ShardState, change: Change) -> None:
        state.apply(change)
        self._note([change.group_id])

    def _end_transaction(self, state: ShardState, producer_id: int, is_commit: bool) -> set[str]:
        groups = state.end_transaction(producer_id, is_commit)
        self._note(groups)
        return groups

    def _note(self, groups: Iterable[str]) -> None:
        self._changed.update(groups)
        self._wake.set()

    async def run(self) -> None:
        """Runs forever. If the write of a group fails, the group is written again later."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            groups, self._changed = self._changed, set()
            left = [group for group in groups if not await self._mirror_if_possible(group)]
            if left:
                self._note(left)
            else:
                self._problem = ""
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _mirror_if_possible(self, group_id: str) -> bool:
        """False if the write has to be retried."""
        try:
            shard = self._shards().shard_for(group_id)
            if shard.status is ShardStatus.CLOSED:
                # Another node coordinates the group, and copies it.
                self._forget(group_id)
                return True
            if shard.status is ShardStatus.LOADING:
                return False
            wanted = self._tree(shard.state, group_id)
            wait = shard.wait_all()
            if wait is not None:
                await wait
            await self._write(group_id, wanted)
        except (CoordinationFailed, NotApplied, KafkaError) as error:
            self._known.pop(group_id, None)
            self._log_once(str(error))
            return False
        except Exception as error:
            # A group is what its clients make of it. One that nobody foresaw must not end the
            # mirror of all others.
            self._known.pop(group_id, None)
            self._leave_out(group_id, error)
            return True
        self._left_out.discard(group_id)
        return True

    def _forget(self, group_id: str) -> None:
        self._known.pop(group_id, None)
        self._left_out.discard(group_id)

    def _log_once(self, problem: str) -> None:
        """Log a problem of the store once, not at every retry."""
        if not self._problem:
            log.warning("cannot copy groups to ZooKeeper now: %s", problem)
        self._problem = problem

    def _leave_out(self, group_id: str, error: Exception) -> None:
        """Log a group's problem once, not at every change of the group."""
        if group_id not in self._left_out:
            log.error(
                "cannot copy group %r to ZooKeeper, trying again when it changes: %s: %s",
                *(group_id, type(error).__name__, error),
                exc_info=error,
            )
        self._left_out.add(group_id)

    def _tree(self, state: ShardState, group_id: str) -> dict[str, bytes]:
        group = state.groups.get(group_id)
        members = [] if group is None else _members(group, self._node.image)
        offsets = {
            topic: {partition: committed.offset for partition, committed in partitions.items()}
            for topic, partitions in state.offsets.get(group_id, {}).items()
        }
        return consumers_tree(group_id, members, offsets)

    async def _write(self, group_id: str, wanted: dict[str, bytes]) -> None:
        number = partition_for(group_id, len(self._shards().all))
        state = self._node.image.partition(OFFSETS_TOPIC, number)
        assert state is not None, group_id
        store = self._session()
        epoch, known = self._known.get(group_id, (-1, {}))
        if epoch != state.leader_epoch:
            known = await read_group(store, group_id)
        # A former leader must not overwrite what its successor wrote.
        guard = Check(partition_state_path(OFFSETS_TOPIC, number), state.version)
        await write_group(store, changes(known, wanted), [guard])
        self._known[group_id] = (state.leader_epoch, wanted)


def _members(group: Group, image: ClusterImage) -> list[MirroredMember]:
    if isinstance(group, ConsumerGroup):
        return [
            MirroredMember(
                member_id,
                tuple(sorted(topics_of(group, member.stored))),
                {
                    image.topics_by_id[topic_id].name: numbers
                    for topic_id, numbers in member.current.assigned.items()
                    if topic_id in image.topics_by_id
                },
            )
            for member_id, member in group.members.items()
        ]
    # The layout is that of consumers; the newer kinds did not exist when tools read it.
    if isinstance(group, ShareGroup | StreamsGroup) or not group.is_of_consumers:
        return []
    found = []
    for member in group.members.values():
        try:
            topics = decode_subscription(member.metadata(group.protocol_name)).topics
            assigned = decode_assignment(member.assignment)
        except ValueError:
            # The client's own bytes; the mirror can only say that it is a member.
            topics, assigned = (), {}
        found.append(MirroredMember(member.member_id, topics, assigned))
    return found
