"""DeleteShareGroupOffsets (92), version 0: a group without members forgets topics."""

from typing import Final

from millstream.broker.coordination.share_state import for_each
from millstream.broker.coordination.sharing import Sharing
from millstream.broker.coordination.transactions import wait_for
from millstream.broker.node.state import NodeState
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.coordinators.groups import requests
from millstream.coordinators.share import admin
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID
from millstream.security.acl import ResourceType
from millstream.wire.apis.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    ShareOffsetsDeletedTopicResponse,
)

_UNKNOWN: Final = KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, admin.UNKNOWN_TOPIC)


async def handle(
    sharing: Sharing,
    node: NodeState,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: DeleteShareGroupOffsetsRequest,
) -> DeleteShareGroupOffsetsResponse:
    errors: dict[str, KafkaError] = {}
    names = await turns.prepared(
        request, lambda each: list(dict.fromkeys(topic.topic_name for topic in each(body.topics)))
    )
    wanted: list[str] = []
    is_any_allowed = not names
    try:
        permissions.require(request, ResourceType.GROUP, body.group_id)
        async for name in turns.each(request, names):
            denied = permissions.denial(request, ResourceType.TOPIC, name)
            if denied is not None:
                errors[name] = denied.error()
                continue
            is_any_allowed = True
            if name in node.image.topics:
                wanted.append(name)
            else:
                errors[name] = _UNKNOWN
        # Also if nothing is left of it: the group may not exist.
        if is_any_allowed:
            errors.update(await _forget(sharing, body.group_id, wanted))
    except KafkaError as error:
        return DeleteShareGroupOffsetsResponse(
            error_code=error.code, error_message=error.message, responses=[]
        )
    return DeleteShareGroupOffsetsResponse(
        error_code=KafkaCode.NONE,
        error_message=None,
        responses=[_row(node, name, errors.get(name)) async for name in turns.each(request, names)],
    )


async def _forget(sharing: Sharing, group_id: str, names: list[str]) -> dict[str, KafkaError]:
    """What failed, by topic. Raises KafkaError."""
    work = await wait_for(
        sharing.groups.submit(
            group_id,
            lambda state, env: admin.begin_forget(
                requests.share_group(state, group_id), names, env
            ),
        )
    )
    errors = {
        name: KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        for name, text in work.unknown_topics.items()
    }
    failed = await for_each(
        group_id,
        [(topic_id, number) for topic_id, one in work.topics.items() for number in one.partitions],
        sharing.state.delete,
    )
    sharing.partitions.forget_group(group_id)
    for (topic_id, _), error in failed.items():
        errors[work.topics[topic_id].name] = error.kept()
    done = work.topics.keys() - {topic_id for topic_id, _ in failed}
    if done:
        await wait_for(
            sharing.groups.submit(
                group_id,
                lambda state, env: admin.forgotten(requests.share_group(state, group_id), done),
            )
        )
    return errors


def _row(node: NodeState, name: str, error: KafkaError | None) -> ShareOffsetsDeletedTopicResponse:
    topic = node.image.topics.get(name)
    return ShareOffsetsDeletedTopicResponse(
        topic_name=name,
        topic_id=NO_TOPIC_ID if topic is None else topic.topic_id,
        error_code=KafkaCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )
