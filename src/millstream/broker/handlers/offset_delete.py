"""OffsetDelete (47), version 0: forget offsets of topics that the group no longer reads."""

from collections.abc import Coroutine
from typing import Any

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.requests.request import Request
from millstream.coordinators.groups import offsets
from millstream.coordinators.groups.offsets import CommitReply
from millstream.errors import KafkaCode
from millstream.wire.apis.offset_delete import (
    OffsetDeletePartitionResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopicResponse,
)


def handle(
    groups: GroupCoordinators, request: Request, body: OffsetDeleteRequest
) -> OffsetDeleteResponse | Coroutine[Any, Any, OffsetDeleteResponse]:
    wanted = [(t.name, [p.partition_index for p in t.partitions]) for t in body.topics]

    def show(codes: CommitReply) -> OffsetDeleteResponse:
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
                for (name, partitions), topic_codes in zip(wanted, codes, strict=True)
            ],
        )

    return groups.ask(
        body.group_id,
        lambda state, env: offsets.delete(state, body.group_id, wanted),
        show=show,
        refuse=lambda error: OffsetDeleteResponse(error_code=error.code, topics=[]),
    )
