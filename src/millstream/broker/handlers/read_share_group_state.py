"""ReadShareGroupState (84), version 0: what is stored of share partitions.

From nodes of the cluster only.
"""

from millstream.broker.coordination.sharing import Sharing
from millstream.broker.requests.request import Request
from millstream.broker.requests.share_state_requests import answer_each
from millstream.coordinators.share import stored
from millstream.wire.apis.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateBatch,
    ReadStatePartitionResult,
    ReadStateResult,
)

NAMES_FEW = True


async def handle(
    sharing: Sharing, request: Request, body: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse:
    results = await answer_each(
        sharing,
        request,
        body.group_id,
        [(topic.topic_id, row.partition, row) for topic in body.topics for row in topic.partitions],
        lambda states, key, row, env: stored.read(
            states, key, leader_epoch=row.leader_epoch, env=env
        ),
    )
    return ReadShareGroupStateResponse(
        results=[
            ReadStateResult(
                topic_id=topic_id,
                partitions=[
                    ReadStatePartitionResult(
                        partition=index,
                        error_code=code,
                        error_message=message,
                        state_epoch=found.state_epoch,
                        start_offset=found.start_offset,
                        state_batches=[
                            ReadStateBatch(
                                first_offset=batch.first,
                                last_offset=batch.last,
                                delivery_state=batch.state,
                                delivery_count=batch.delivery_count,
                            )
                            for batch in found.batches
                        ],
                    )
                ],
            )
            for topic_id, index, code, message, found in results
        ]
    )
