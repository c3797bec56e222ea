"""OffsetDelete (47), version 0: forget offsets of topics that the group no longer reads."""

from collections.abc import Coroutine
from typing import Any

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.coordinators.groups import offsets
from millstream.coordinators.groups.offsets import CommitReply
from millstream.errors import KafkaCode
from millstream.security.acl import ResourceType
from millstream.wire.apis.offset_delete import (
    OffsetDeletePartitionResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopicResponse,
)


def handle(
    groups: GroupCoordinators,
    permissions: Permissions,
    request: Request,
    body: OffsetDeleteRequest,
) -> OffsetDeleteResponse | Coroutine[Any, Any, OffsetDeleteResponse]:
    denied_group = permissions.denial(request, ResourceType.GROUP, body.group_id)
    if denied_group is not None:
        return OffsetDeleteResponse(error_code=denied_group.code, topics=[])
    named = [(t.name, [p.partition_index for p in t.partitions]) for t in body.topics]
    denials = {name: permissions.denial(request, ResourceType.TOPIC, name) for name, _ in named}
    wanted = [(name, indexes) for name, indexes in named if denials[name] is None]

    def show(allowed: CommitReply) -> OffsetDeleteResponse:
        found = iter(allowed)
        codes = [
            next(found) if (denied := denials[name]) is None else [denied.code] * len(indexes)
            for name, indexes in named
        ]
        return OffsetDeleteResponse(
            error_code=KafkaCode.NONE,
            topics=[
                OffsetDeleteTopicResponse(
                    name=name,
                    partitions=[
                        OffsetDeletePartitionResponse(partition_index=index, error_code=code)
                        for index, code in zip(partitions, topic_codes, strict=True)
                    ],
                )
                for (name, partitions), topic_codes in zip(named, codes, strict=True)
            ],
        )

    if not wanted and named:
        return show([])
    return groups.ask(
        body.group_id,
        lambda state, env: offsets.delete(state, body.group_id, wanted),
        show=show,
        refuse=lambda error: OffsetDeleteResponse(error_code=error.code, topics=[]),
    )
