"""The response of a ShareFetch, partition by partition."""

from dataclasses import dataclass, field

from millstream.broker.coordination.share_sessions import Where
from millstream.broker.coordination.sharing import Sharing
from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.broker.requests.share_leaders import current_leader, endpoints
from millstream.coordinators.share.partition import Acquired
from millstream.errors import KafkaCode, KafkaError
from millstream.model import TopicId
from millstream.wire.apis.metadata import LeaderIdAndEpoch
from millstream.wire.apis.share_fetch import (
    AcquiredRecords,
    ShareFetchPartitionResponse,
    ShareFetchResponse,
    ShareFetchTopicResponse,
)


@dataclass(slots=True)
class Row:
    """What one partition answers."""

    error: KafkaError | None = None
    records: bytes = b""
    acquired: list[Acquired] = field(default_factory=list)


class Rows:
    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._topics: dict[TopicId, ShareFetchTopicResponse] = {}
        self._leaders: list[LeaderIdAndEpoch] = []

    def add(self, where: Where, row: Row, said: KafkaError | None) -> None:
        """`said` is what became of its acknowledgements."""
        code = KafkaCode.NONE if row.error is None else row.error.code
        state = self._node.image.topics_by_id.get(where.topic_id)
        name = None if state is None else state.name
        leader = current_leader(self._node, code, name, where.partition)
        self._leaders.append(leader)
        topic = self._topics.get(where.topic_id)
        if topic is None:
            topic = ShareFetchTopicResponse(topic_id=where.topic_id, partitions=[])
            self._topics[where.topic_id] = topic
        topic.partitions.append(
            ShareFetchPartitionResponse(
                partition_index=where.partition,
                error_code=code,
                error_message=None if row.error is None else row.error.message,
                acknowledge_error_code=KafkaCode.NONE if said is None else said.code,
                acknowledge_error_message=None if said is None else said.message,
                current_leader=leader,
                records=row.records,
                acquired_records=[
                    AcquiredRecords(
                        first_offset=one.first,
                        last_offset=one.last,
                        delivery_count=one.delivery_count,
                    )
                    for one in row.acquired
                ],
            )
        )

    def response(self, sharing: Sharing, request: Request, group_id: str) -> ShareFetchResponse:
        return ShareFetchResponse(
            error_code=KafkaCode.NONE,
            error_message=None,
            acquisition_lock_timeout_ms=sharing.partitions.limits_of(group_id).lock_ms,
            responses=list(self._topics.values()),
            node_endpoints=endpoints(self._node, request.listener, self._leaders),
        )
