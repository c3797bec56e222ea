"""DeleteShareGroupState (86), version 0: forget share partitions.

From nodes of the cluster only.
"""

from millstream.broker.coordination.sharing import Sharing
from millstream.broker.requests.request import Request
from millstream.broker.requests.share_state_requests import answer_each
from millstream.coordinators.share import stored
from millstream.wire.apis.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStatePartitionResult,
    DeleteStateResult,
)

NAMES_FEW = True


async def handle(
    sharing: Sharing, request: Request, body: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    results = await answer_each(
        sharing,
        request,
        body.group_id,
        [(topic.topic_id, row.partition, row) for topic in body.topics for row in topic.partitions],
        lambda states, key, row, env: stored.delete(states, key, env),
    )
    return DeleteShareGroupStateResponse(
        results=[
            DeleteStateResult(
                topic_id=topic_id,
                partitions=[
                    DeleteStatePartitionResult(
                        partition=index,
                        error_code=code,
                        error_message=message,
                    )
                ],
            )
            for topic_id, index, code, message, _ in results
        ]
    )
