"""ReadShareGroupStateSummary (87), versions 0-1: where share partitions start.

From nodes of the cluster only.
"""

from millstream.broker.coordination.sharing import Sharing
from millstream.broker.requests.request import Request
from millstream.broker.requests.share_state_requests import answer_each
from millstream.coordinators.share import stored
from millstream.wire.apis.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadSummaryPartitionResult,
    ReadSummaryResult,
)

NAMES_FEW = True


async def handle(
    sharing: Sharing, request: Request, body: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    results = await answer_each(
        sharing,
        request,
        body.group_id,
        [(topic.topic_id, row.partition, row) for topic in body.topics for row in topic.partitions],
        lambda states, key, row, env: stored.summary(states, key, env),
    )
    return ReadShareGroupStateSummaryResponse(
        results=[
            ReadSummaryResult(
                topic_id=topic_id,
                partitions=[
                    ReadSummaryPartitionResult(
                        partition=index,
                        error_code=code,
                        error_message=message,
                        state_epoch=found.state_epoch,
                        leader_epoch=found.leader_epoch,
                        start_offset=found.start_offset,
                        delivery_complete_count=found.finished_count,
                    )
                ],
            )
            for topic_id, index, code, message, found in results
        ]
    )
