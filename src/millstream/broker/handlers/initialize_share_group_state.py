"""InitializeShareGroupState (83), version 0: begin share partitions.

From nodes of the cluster only.
"""

from millstream.broker.coordination.sharing import Sharing
from millstream.broker.requests.request import Request
from millstream.broker.requests.share_state_requests import answer_each
from millstream.coordinators.share import stored
from millstream.wire.apis.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStatePartitionResult,
    InitializeStateResult,
)

NAMES_FEW = True


async def handle(
    sharing: Sharing, request: Request, body: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    results = await answer_each(
        sharing,
        request,
        body.group_id,
        [(topic.topic_id, row.partition, row) for topic in body.topics for row in topic.partitions],
        lambda states, key, row, env: stored.initialize(
            states, key, state_epoch=row.state_epoch, start_offset=row.start_offset, env=env
        ),
    )
    return InitializeShareGroupStateResponse(
        results=[
            InitializeStateResult(
                topic_id=topic_id,
                partitions=[
                    InitializeStatePartitionResult(
                        partition=index,
                        error_code=code,
                        error_message=message,
                    )
                ],
            )
            for topic_id, index, code, message, _ in results
        ]
    )
