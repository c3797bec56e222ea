"""Fetches that only a cluster knows: by another node, of a partition that it has a replica
of; and by a consumer that had better ask another node.

A node's fetch has the same request and the same answer as a consumer's, but for two things:
it reads to the end of the log, and what it asks for says how far the replica is.
"""

from typing import TYPE_CHECKING, Final

from millstream.broker.requests.admission import Admission
from millstream.errors import KafkaCode, KafkaError
from millstream.replication.partition import Partition
from millstream.replication.replicated import ReplicatedPartition
from millstream.storage.log import FileRange
from millstream.wire.fetch import FetchPartition, FetchRequest, FetchResult

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

_RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
# The answer is full: the position counts, the records come next time.
NO_ROOM: Final = -1


def read_for_replica(
    broker: "Broker",
    body: FetchRequest,
    admission: Admission,
    fetch: FetchPartition,
    result: FetchResult,
    budget: int,
) -> None:
    """Fill in `result`. Raises KafkaError."""
    partition = admission.partition
    if not isinstance(partition, ReplicatedPartition):
        # No other node has a replica of it, whatever the request says.
        raise KafkaError(KafkaCode.NOT_LEADER_OR_FOLLOWER)
    node = broker.image.brokers.get(body.replica_id)
    if node is None or node.epoch != body.replica_epoch:
        # Of another incarnation, or somebody who only says to be a node: what it claims to
        # have would count.
        raise KafkaError(KafkaCode.STALE_BROKER_EPOCH)
    assert broker.replicas is not None
    throttles = broker.replicas.throttles
    if throttles.holds_back_sending(partition, body.replica_id):
        budget = NO_ROOM
    if admission.read is not None:
        raise admission.read.error()
    partition.require_leader().answer(
        body.replica_id,
        body.replica_epoch,
        fetch,
        result,
        max_bytes=min(fetch.max_bytes, budget),
        now_ms=int(broker.clock.monotonic() * 1000),
    )
    if isinstance(result.records, FileRange):
        result.records_bytes = result.records.length
        throttles.sent(partition, body.replica_id, result.records_bytes)
    broker.replicas.in_sync.fetched_by(partition, body.replica_id)


def preferred_reader(
    broker: "Broker", partition: Partition, rack_id: str, offset: int
) -> int | None:
    """Where a consumer in this rack should read; None where it is right."""
    if not isinstance(partition, ReplicatedPartition) or partition.leadership is None:
        return None
    if broker.config.optional_string("replica.selector.class") != _RACK_AWARE:
        return None
    if broker.config.optional_string("broker.rack") == rack_id:
        return None
    near = {one.id for one in broker.image.brokers.values() if one.rack == rack_id}
    return partition.leadership.nearest_reader(near, offset) if near else None
