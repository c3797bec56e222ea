"""Requests of other nodes to the share coordinator: each names share partitions of one group."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

from millstream.broker.coordination.sharing import Sharing
from millstream.broker.requests.request import Request
from millstream.coordinators.codecs.share_state import ShareKey, StoredShare
from millstream.coordinators.share.stored import (
    UNKNOWN,
    ShareStateDecision,
    ShareStateEnv,
    ShareStates,
)
from millstream.errors import KafkaCode, KafkaError

Row = TypeVar("Row")
Decide = Callable[[ShareStates, ShareKey, Row, ShareStateEnv], ShareStateDecision]
# Topic, partition, code, message, and what is stored.
Result = tuple[UUID, int, KafkaCode, str | None, StoredShare]


async def answer_each(
    sharing: Sharing,
    request: Request,
    group_id: str,
    wanted: Sequence[tuple[UUID, int, Row]],
    decide: "Decide[Row]",
) -> list[Result]:
    async def one(topic_id: UUID, index: int, row: Row) -> Result:
        try:
            if request.connection.proved_node_id < 0:
                raise KafkaError(KafkaCode.CLUSTER_AUTHORIZATION_FAILED)
            key = ShareKey(group_id, topic_id, index)
            answer = sharing.coordinator.submit(
                key, lambda states, env: decide(states, key, row, env)
            )
            found = await answer if isinstance(answer, asyncio.Future) else answer
        except KafkaError as error:
            return topic_id, index, error.code, error.message, UNKNOWN
        return topic_id, index, KafkaCode.NONE, None, found

    return await asyncio.gather(*(one(*each) for each in wanted))
