from millstream.errors import KafkaCode
from millstream.wire.apis import ApiKey
from millstream.wire.messages import Struct
from tests.support.raw_client import RawClient


def test_reassignments_and_elections_as_far_as_one_node_goes(client: RawClient, topic: str) -> None:
    moved = client.ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        timeout_ms=1000,
        topics=[
            Struct(
                name=topic,
                partitions=[
                    Struct(partition_index=0, replicas=[99]),
                    Struct(partition_index=1, replicas=None),
                ],
            )
        ],
    )
    assert [p.error_code for p in moved.responses[0].partitions] == [
        KafkaCode.INVALID_REPLICA_ASSIGNMENT,
        KafkaCode.NO_REASSIGNMENT_IN_PROGRESS,
    ]
    listed = client.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout_ms=1000, topics=None)
    assert listed.topics == []
    elected = client.ask(
        ApiKey.ELECT_LEADERS,
        2,
        election_type=0,
        topic_partitions=[Struct(topic=topic, partitions=[0])],
        timeout_ms=1000,
    )
    result = elected.replica_election_results[0].partition_result[0]
    assert result.error_code == KafkaCode.ELECTION_NOT_NEEDED
