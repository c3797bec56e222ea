"""Fetches that exist only in a cluster: by another node that has a replica of the partition,
and by a consumer that should read from another node.

A node's fetch has the same request and response as a consumer's, with two differences: it
reads to the end of the log, and its fetch offset says how far the replica is.
"""

from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.requests.admission import Admission
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode, KafkaError
from millstream.replication.partition import Partition
from millstream.replication.replicated import ReplicatedPartition
from millstream.storage.log import FileRange
from millstream.wire.fetch import FetchPartition, FetchRequest, FetchResult

_RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
# The response is full: the position counts, the records come next time.
NO_ROOM: Final = -1


def read_for_replica(
    node: NodeState,
    request: Request,
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
    if request.connection.proved_node_id != body.replica_id:
        # What it claims to have would count as replicated.
        raise KafkaError(KafkaCode.TOPIC_AUTHORIZATION_FAILED)
    follower = node.image.brokers.get(body.replica_id)
    if follower is None or follower.epoch != body.replica_epoch:
        # Of an older incarnation, whose log may have lost what it had.
        raise KafkaError(KafkaCode.STALE_BROKER_EPOCH)
    followers = node.cluster.followers
    if followers.is_held_back(partition, body.replica_id):
        budget = NO_ROOM
    if admission.read is not None:
        raise admission.read.error()
    partition.require_leader().answer(
        body.replica_id,
        body.replica_epoch,
        fetch,
        result,
        max_bytes=min(fetch.max_bytes, budget),
        now_ms=node.now_ms(),
    )
    if isinstance(result.records, FileRange):
        result.records_bytes = result.records.length
    followers.fetched(partition, body.replica_id, result.records_bytes)


def preferred_reader(
    node: NodeState, partition: Partition, rack_id: str, offset: int
) -> int | None:
    """The replica that a consumer in this rack should read from; None for this one."""
    if not isinstance(partition, ReplicatedPartition) or partition.leadership is None:
        return None
    if node.config.optional_string("replica.selector.class") != _RACK_AWARE:
        return None
    if node.config.optional_string("broker.rack") == rack_id:
        return None
    near = {one.id for one in node.image.brokers.values() if one.rack == rack_id}
    return partition.leadership.nearest_reader(near, offset) if near else None
