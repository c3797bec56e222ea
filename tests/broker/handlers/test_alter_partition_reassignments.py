from millstream.errors import KafkaCode
from millstream.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from millstream.wire.apis.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from millstream.wire.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.support.raw_client import RawClient


def test_reassignments_and_elections_as_far_as_one_node_goes(client: RawClient, topic: str) -> None:
    moved = client.ask(
        AlterPartitionReassignmentsRequest(
            timeout_ms=1000,
            topics=[
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        ReassignablePartition(partition_index=0, replicas=[99]),
                        ReassignablePartition(partition_index=1, replicas=None),
                    ],
                )
            ],
        ),
        0,
    )
    assert [p.error_code for p in moved.responses[0].partitions] == [
        KafkaCode.INVALID_REPLICA_ASSIGNMENT,
        KafkaCode.NO_REASSIGNMENT_IN_PROGRESS,
    ]
    listed = client.ask(ListPartitionReassignmentsRequest(timeout_ms=1000, topics=None), 0)
    assert listed.topics == []
    elected = client.ask(
        ElectLeadersRequest(
            election_type=0,
            topic_partitions=[ElectLeadersTopic(topic=topic, partitions=[0])],
            timeout_ms=1000,
        ),
        2,
    )
    result = elected.replica_election_results[0].partition_result[0]
    assert result.error_code == KafkaCode.ELECTION_NOT_NEEDED
