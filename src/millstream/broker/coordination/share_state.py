"""Storing and reading the state of share partitions, wherever their share coordinator is.

The leader of a partition stores what became of its records; the coordinator of a group begins
and forgets share partitions. Both ask here. Every request may be sent twice.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final
from uuid import UUID

from millstream.broker.coordination.share_coordinator import ShareCoordinator, ShareStateDecide
from millstream.broker.node.state import NodeState
from millstream.client.aio import NoAnswer
from millstream.cluster.state import NO_LEADER
from millstream.coordinators.codecs.share_state import ShareKey, StoredShare
from millstream.coordinators.share import stored
from millstream.coordinators.share.state_batches import StateBatch
from millstream.coordinators.share.stored import (
    NO_EPOCH,
    UNKNOWN,
    ShareStateDecision,
    ShareStateEnv,
    ShareStates,
    Written,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteStatePartition,
    DeleteStateTopic,
)
from millstream.wire.apis.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStatePartition,
    InitializeStateTopic,
)
from millstream.wire.apis.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadStatePartition,
    ReadStateTopic,
)
from millstream.wire.apis.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadSummaryPartition,
    ReadSummaryTopic,
)
from millstream.wire.apis.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteStateBatch,
    WriteStatePartition,
    WriteStateTopic,
)
from millstream.wire.message import Message, Request

# What is sent if the coordinator is on another node, made only then.
NewRequest = Callable[[], Request[Message]]

log = logging.getLogger(__name__)

_ANSWER_SECONDS_MAX: Final = 10.0
# While a coordinator loads or moves, it is asked again after these seconds.
_RETRY_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_PASSING: Final = frozenset(
    {
        KafkaCode.NOT_COORDINATOR,
        KafkaCode.COORDINATOR_NOT_AVAILABLE,
        KafkaCode.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaCode.NETWORK_EXCEPTION,
    }
)
_VERSIONS: Final = {
    InitializeShareGroupStateRequest: 0,
    ReadShareGroupStateRequest: 0,
    WriteShareGroupStateRequest: 1,
    DeleteShareGroupStateRequest: 0,
    ReadShareGroupStateSummaryRequest: 1,
}


class ShareStateStore:
    def __init__(self, node: NodeState, coordinator: Callable[[], ShareCoordinator]) -> None:
        self._node = node
        self._coordinator = coordinator

    async def initialize(self, key: ShareKey, *, state_epoch: int, start_offset: int) -> None:
        row = InitializeStatePartition(
            partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
        )
        topic = InitializeStateTopic(topic_id=key.topic_id, partitions=[row])
        await self._ask(
            key,
            lambda states, env: stored.initialize(
                states, key, state_epoch=state_epoch, start_offset=start_offset, env=env
            ),
            lambda: InitializeShareGroupStateRequest(group_id=key.group_id, topics=[topic]),
        )

    async def read(self, key: ShareKey, *, leader_epoch: int) -> StoredShare:
        row = ReadStatePartition(partition=key.partition, leader_epoch=leader_epoch)
        topic = ReadStateTopic(topic_id=key.topic_id, partitions=[row])
        return await self._ask(
            key,
            lambda states, env: stored.read(states, key, leader_epoch=leader_epoch, env=env),
            lambda: ReadShareGroupStateRequest(group_id=key.group_id, topics=[topic]),
        )

    def write(
        self, key: ShareKey, written: Written
    ) -> "StoredShare | Coroutine[Any, Any, StoredShare]":
        """The reply, or what to wait for. Both raise KafkaError."""

        def decide(states: ShareStates, env: ShareStateEnv) -> ShareStateDecision:
            return stored.write(states, key, written, env)

        coordinator = self._coordinator()
        begun: asyncio.Future[StoredShare] | None = None
        if coordinator.is_here(key):
            try:
                answer = coordinator.submit(key, decide)
                if not isinstance(answer, asyncio.Future):
                    return answer
                begun = answer
            except KafkaError as error:
                if error.code not in _PASSING:
                    raise
        return self._ask(key, decide, lambda: _write_request(key, written), begun)

    async def delete(self, key: ShareKey) -> None:
        row = DeleteStatePartition(partition=key.partition)
        topic = DeleteStateTopic(topic_id=key.topic_id, partitions=[row])
        await self._ask(
            key,
            lambda states, env: stored.delete(states, key, env),
            lambda: DeleteShareGroupStateRequest(group_id=key.group_id, topics=[topic]),
        )

    async def summary(self, key: ShareKey) -> StoredShare:
        row = ReadSummaryPartition(partition=key.partition, leader_epoch=NO_EPOCH)
        topic = ReadSummaryTopic(topic_id=key.topic_id, partitions=[row])
        return await self._ask(
            key,
            lambda states, env: stored.summary(states, key, env),
            lambda: ReadShareGroupStateSummaryRequest(group_id=key.group_id, topics=[topic]),
        )

    # -- one request --------------------------------------------------------------------

    async def _ask(
        self,
        key: ShareKey,
        decide: ShareStateDecide,
        request: NewRequest,
        begun: "asyncio.Future[StoredShare] | None" = None,
    ) -> StoredShare:
        """`begun` is the answer to the first attempt, if that was made. Raises KafkaError."""
        for seconds in _RETRY_SECONDS:
            try:
                if begun is None:
                    return await self._ask_once(key, decide, request)
                return await begun
            except KafkaError as error:
                if error.code not in _PASSING:
                    raise
                log.debug("share coordinator of %s: %s", key.name, error)
            begun = None
            await asyncio.sleep(seconds)
        return await self._ask_once(key, decide, request)

    async def _ask_once(
        self, key: ShareKey, decide: ShareStateDecide, new_request: NewRequest
    ) -> StoredShare:
        coordinator = self._coordinator()
        if not coordinator.has_topic:
            await coordinator.ensure_topic()
        leader = coordinator.shards.other_leader_of(key.name)
        if leader is None:
            answer = coordinator.submit(key, decide)
            return await answer if isinstance(answer, asyncio.Future) else answer
        if leader == NO_LEADER:
            raise KafkaError(KafkaCode.COORDINATOR_NOT_AVAILABLE)
        request = new_request()
        version = _VERSIONS[type(request)]
        try:
            response = await self._node.cluster.peers.ask(
                leader, request, version, timeout_seconds=_ANSWER_SECONDS_MAX
            )
        except NoAnswer as error:
            raise KafkaError(KafkaCode.NETWORK_EXCEPTION, str(error)) from error
        return _read_answer(key, response)


def _write_request(key: ShareKey, written: Written) -> WriteShareGroupStateRequest:
    row = WriteStatePartition(
        partition=key.partition,
        state_epoch=written.state_epoch,
        leader_epoch=written.leader_epoch,
        start_offset=written.start_offset,
        delivery_complete_count=written.finished_count,
        state_batches=[
            WriteStateBatch(
                first_offset=batch.first,
                last_offset=batch.last,
                delivery_state=batch.state,
                delivery_count=batch.delivery_count,
            )
            for batch in written.batches
        ],
    )
    topic = WriteStateTopic(topic_id=key.topic_id, partitions=[row])
    return WriteShareGroupStateRequest(group_id=key.group_id, topics=[topic])


def _read_answer(key: ShareKey, response: Message) -> StoredShare:
    """The one result of an answer. The five answers have the same form, with more or fewer
    fields. Raises KafkaError."""
    for topic in getattr(response, "results", ()):
        for row in topic.partitions:
            if (topic.topic_id, row.partition) != (key.topic_id, key.partition):
                continue
            if row.error_code != KafkaCode.NONE:
                raise KafkaError(KafkaCode(row.error_code), row.error_message or "")
            return StoredShare(
                snapshot_epoch=0,
                state_epoch=getattr(row, "state_epoch", UNKNOWN.state_epoch),
                leader_epoch=getattr(row, "leader_epoch", UNKNOWN.leader_epoch),
                start_offset=getattr(row, "start_offset", UNKNOWN.start_offset),
                finished_count=getattr(row, "delivery_complete_count", UNKNOWN.finished_count),
                created_ms=0,
                written_ms=0,
                batches=tuple(
                    StateBatch(
                        batch.first_offset,
                        batch.last_offset,
                        batch.delivery_state,
                        batch.delivery_count,
                    )
                    for batch in getattr(row, "state_batches", ())
                ),
            )
    raise KafkaError(KafkaCode.UNKNOWN_SERVER_ERROR, f"no answer about {key.name}")


async def for_each(
    group_id: str,
    partitions: "list[tuple[UUID, int]]",
    act: Callable[[ShareKey], Awaitable[object]],
) -> "dict[tuple[UUID, int], KafkaError]":
    """Do something for many share partitions of a group, some at a time; what failed, and why."""
    failed: dict[tuple[UUID, int], KafkaError] = {}
    places = asyncio.Semaphore(_AT_ONCE_MAX)

    async def one(topic_id: UUID, number: int) -> None:
        async with places:
            try:
                await act(ShareKey(group_id, topic_id, number))
            except KafkaError as error:
                failed[topic_id, number] = error

    await asyncio.gather(*(one(topic_id, number) for topic_id, number in partitions))
    return failed


# So many requests are sent to share coordinators at the same time, for one request of a client.
_AT_ONCE_MAX: Final = 20
