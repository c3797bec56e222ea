"""WriteShareGroupState (85), versions 0-1: what became of records.

From nodes of the cluster only.
"""

from typing import Final

from millstream.broker.coordination.sharing import Sharing
from millstream.broker.requests.request import Request
from millstream.broker.requests.share_state_requests import answer_each
from millstream.coordinators.share import stored
from millstream.coordinators.share.state_batches import StateBatch
from millstream.coordinators.share.stored import Written
from millstream.errors import ProtocolError
from millstream.wire.apis.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStatePartition,
    WriteStatePartitionResult,
    WriteStateResult,
)

# Nodes write one at a time.
_PARTITIONS_MAX: Final = 1_000


async def handle(
    sharing: Sharing, request: Request, body: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    named = len(body.topics)
    if named > _PARTITIONS_MAX or sum(len(one.partitions) for one in body.topics) > _PARTITIONS_MAX:
        raise ProtocolError("a request with too many share partitions")
    results = await answer_each(
        sharing,
        request,
        body.group_id,
        [(topic.topic_id, row.partition, row) for topic in body.topics for row in topic.partitions],
        lambda states, key, row, env: stored.write(states, key, _written(row), env),
    )
    return WriteShareGroupStateResponse(
        results=[
            WriteStateResult(
                topic_id=topic_id,
                partitions=[
                    WriteStatePartitionResult(
                        partition=index,
                        error_code=code,
                        error_message=message,
                    )
                ],
            )
            for topic_id, index, code, message, _ in results
        ]
    )


def _written(row: WriteStatePartition) -> Written:
    return Written(
        row.state_epoch,
        row.leader_epoch,
        row.start_offset,
        row.delivery_complete_count,
        tuple(
            StateBatch(
                batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count
            )
            for batch in row.state_batches
        ),
    )
