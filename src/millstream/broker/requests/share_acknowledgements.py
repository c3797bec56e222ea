"""What members say about records that they have acquired, in ShareAcknowledge and ShareFetch."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from millstream.broker.coordination.share_partitions import LedShare, SharePartitions
from millstream.broker.coordination.share_sessions import SessionKey, Where
from millstream.broker.coordination.sharing import Sharing
from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.coordinators.codecs.share_state import ShareKey
from millstream.coordinators.share.acknowledging import (
    GAP,
    REJECT,
    RENEW,
    Acknowledgement,
    Change,
)
from millstream.coordinators.share.partition import SharePartition
from millstream.errors import KafkaCode, KafkaError
from millstream.security.acl import ResourceType
from millstream.wire.apis.share_fetch import AcknowledgementBatch

MEMBER_ID_LENGTH_MAX: Final = 36
NONE: Final = KafkaError(KafkaCode.NONE)
# Of one request, and of a session. They are looked at together, and nobody is served meanwhile.
PARTITIONS_MAX: Final = 5_000
BATCHES_MAX: Final = 20_000
# From here on clients may renew locks.
RENEWS_FROM: Final = 2

# By partition: NONE, or why it was refused.
Results = dict[Where, KafkaError]


@dataclass(slots=True)
class Asked:
    """The acknowledgements of one request."""

    batches: dict[Where, Sequence[AcknowledgementBatch]]
    may_renew: bool


@dataclass(slots=True)
class Begun:
    """What was refused at once, and the changes that have begun."""

    results: Results
    changes: dict[Where, tuple[LedShare, SharePartition, Change]] = field(default_factory=dict)


def session_key(
    permissions: Permissions, request: Request, group_id: str | None, member_id: str | None
) -> SessionKey:
    """Raises KafkaError."""
    if group_id is None:
        raise KafkaError(KafkaCode.INVALID_REQUEST, "Invalid group id in the request.")
    permissions.require(request, ResourceType.GROUP, group_id)
    if not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise KafkaError(KafkaCode.INVALID_REQUEST, "Invalid member id in the request.")
    return SessionKey(group_id, member_id)


def check_size(partitions: int, batches: int = 0) -> None:
    """Raises KafkaError."""
    if partitions > PARTITIONS_MAX or batches > BATCHES_MAX:
        raise _invalid(
            f"A member fetches from up to {PARTITIONS_MAX:,} partitions, and acknowledges up to"
            f" {BATCHES_MAX:,} ranges of offsets at once."
        )


def begin(
    sharing: Sharing,
    node: NodeState,
    permissions: Permissions,
    request: Request,
    key: SessionKey,
    asked: Asked,
) -> Begun:
    """All changes begin at once, in order of the request: a fetch of the same request comes after
    them. What is returned must be given to `store`."""
    begun = Begun(dict.fromkeys(asked.batches, NONE))
    for where, batches in asked.batches.items():
        try:
            acknowledgements = _checked(batches, request, may_renew=asked.may_renew)
            name = topic_name(node, where)
            permissions.require(request, ResourceType.TOPIC, name)
            led = sharing.partitions.find(ShareKey(key.group_id, *where))
            if led is None:
                node.partitions.get(name, where.partition).require_online()
                raise KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
            assert led.share is not None
            change = sharing.partitions.acknowledge(led, key.member_id, acknowledgements)
            begun.changes[where] = led, led.share, change
        except KafkaError as error:
            begun.results[where] = error.kept()
    return begun


def store(partitions: SharePartitions, begun: Begun) -> Results | Coroutine[Any, Any, Results]:
    """What became of the changes, once they are committed: at once if nothing has to be waited
    for. What is returned otherwise must be awaited."""
    results = begun.results
    waits: dict[Where, Coroutine[Any, Any, None]] = {}
    for where, change in begun.changes.items():
        try:
            wait = partitions.store(*change)
        except KafkaError as error:
            results[where] = error.kept()
        else:
            if wait is not None:
                waits[where] = wait
    return _stored(waits, results) if waits else results


async def _stored(waits: dict[Where, Coroutine[Any, Any, None]], results: Results) -> Results:
    async def one(where: Where) -> None:
        try:
            await waits[where]
        except KafkaError as error:
            results[where] = error.kept()

    if len(waits) == 1:
        await one(next(iter(waits)))
    else:
        await asyncio.gather(*(one(where) for where in waits))
    return results


def topic_name(node: NodeState, where: Where) -> str:
    """Raises KafkaError."""
    topic = node.image.topics_by_id.get(where.topic_id)
    if topic is None:
        raise KafkaError(KafkaCode.UNKNOWN_TOPIC_ID)
    if where.partition >= len(topic.partitions):
        raise KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic.name


def _checked(
    batches: Sequence[AcknowledgementBatch], request: Request, *, may_renew: bool
) -> list[Acknowledgement]:
    """Raises KafkaError."""
    highest = RENEW if request.version >= RENEWS_FROM else REJECT
    end = -1
    found = []
    for batch in batches:
        types = batch.acknowledge_types
        size = batch.last_offset - batch.first_offset + 1
        if size < 1 or batch.first_offset < end:
            raise _invalid("Acknowledgements must be in the order of offsets.")
        if not types or (len(types) > 1 and len(types) != size):
            raise _invalid("AcknowledgeTypes has one type for the batch, or one per offset.")
        if not all(GAP <= kind <= highest for kind in types):
            raise _invalid("AcknowledgeTypes has an unknown type.")
        if RENEW in types and not may_renew:
            raise _invalid("IsRenewAck must be set if locks are renewed.")
        end = batch.last_offset
        found.append(Acknowledgement(batch.first_offset, batch.last_offset, types))
    return found


def _invalid(text: str) -> KafkaError:
    return KafkaError(KafkaCode.INVALID_REQUEST, text)
