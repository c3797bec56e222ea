from millstream.wire.apis.describe_topic_partitions import (
    DescribeTopicPartitionsCursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsTopic,
)
from tests.support.broker import Broker
from tests.support.raw_client import RawClient


def page(
    client: RawClient, cursor: DescribeTopicPartitionsCursor | None
) -> DescribeTopicPartitionsResponse:
    return client.ask(
        DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsTopic(name="many")],
            response_partition_limit=100,
            cursor=cursor,
        ),
        0,
    )


def test_the_node_limits_the_partitions_of_one_answer() -> None:
    settings = {"max.request.partition.size.limit": "3"}
    with (
        Broker(topics={"many": 5}, settings=settings) as broker,
        RawClient(broker.bootstrap) as client,
    ):
        first = page(client, None)
        assert [each.partition_index for each in first.topics[0].partitions] == [0, 1, 2]
        assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("many", 3)
        second = page(client, first.next_cursor)
        assert [each.partition_index for each in second.topics[0].partitions] == [3, 4]
        assert second.next_cursor is None
