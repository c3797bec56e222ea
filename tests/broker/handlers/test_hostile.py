"""A request costs what its distinct resources cost, however often it names them.

Covers broker/handlers.
"""

import asyncio
import struct
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from millstream.coordinators.consumer.pattern import TopicPattern
from millstream.errors import KafkaCode
from millstream.model import NO_TOPIC_ID, Codec
from millstream.records.builder import build_batch
from millstream.records.records import Record
from millstream.wire.apis.alter_configs import AlterConfigsRequest, AlterConfigsResource
from millstream.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from millstream.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from millstream.wire.apis.delete_topics import DeletableTopic, DeleteTopicsRequest
from millstream.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millstream.wire.apis.describe_groups import DescribeGroupsRequest
from millstream.wire.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from millstream.wire.apis.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from millstream.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.init_producer_id import InitProducerIdRequest
from millstream.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millstream.wire.apis.list_transactions import ListTransactionsRequest
from millstream.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from millstream.wire.apis.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchRequest,
    OffsetFetchTopic,
)
from millstream.wire.apis.produce import ProduceRequest
from millstream.wire.apis.write_txn_markers import WriteTxnMarkersRequest
from millstream.wire.message import Message, Request
from tests.broker.handlers.exchanges import batch, fetch, produce
from tests.support.attacks import Aim, batches_of_garbage, commit_markers, fetches_of_a_replica
from tests.support.broker import Broker
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

# More than are read on the loop, so that the longer way is taken.
MANY = 6_000

A = TypeVar("A", bound=Message)
AttackFrames = Callable[[RawClient, Aim], list[bytes]]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def list_offsets(topic: str, timestamps: list[int], index: int = 0) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                    for timestamp in timestamps
                ],
            )
        ],
    )


def sent(client: RawClient, topic: str, attack: AttackFrames, request: type[Request[A]]) -> list[A]:
    """The answers to a small attack."""
    frames = attack(client, Aim(topic, scale=0.02))
    version = struct.unpack_from(">h", frames[0], 6)[0]
    for each in frames:
        client.sock.sendall(each)
    return [client.receive(request, version) for _ in frames]


def test_garbage_is_not_stored(client: RawClient, topic: str) -> None:
    answers = sent(client, topic, batches_of_garbage, ProduceRequest)
    codes = {row.error_code for one in answers for row in one.responses[0].partition_responses}
    assert codes == {KafkaCode.INVALID_RECORD}
    assert fetch(client, topic, 0).high_watermark == 0


def test_nobody_fetches_as_a_node_that_it_is_not(client: RawClient, topic: str) -> None:
    answers = sent(client, topic, fetches_of_a_replica, FetchRequest)
    codes = {row.error_code for one in answers for row in one.responses[0].partitions}
    assert codes == {KafkaCode.NOT_LEADER_OR_FOLLOWER}
    assert not any(row.records for one in answers for row in one.responses[0].partitions)


def test_clients_commit_no_transaction_in_place_of_its_coordinator(
    client: RawClient, topic: str
) -> None:
    [answer] = sent(client, topic, commit_markers, WriteTxnMarkersRequest)
    codes = {row.error_code for row in answer.markers[0].topics[0].partitions}
    assert codes == {KafkaCode.CLUSTER_AUTHORIZATION_FAILED}
    assert fetch(client, topic, 0).high_watermark == 0


def test_metadata_shows_a_topic_once(client: RawClient, topic: str) -> None:
    named = [MetadataRequestTopic(name=topic, topic_id=NO_TOPIC_ID)] * MANY
    found = client.ask(MetadataRequest(topics=named, allow_auto_topic_creation=False), 9)
    assert [(each.name, len(each.partitions)) for each in found.topics] == [(topic, 2)]


def test_a_group_is_described_once(client: RawClient) -> None:
    ask = FindCoordinatorRequest(key="g", key_type=0)
    wait_until(lambda: client.ask(ask, 1).error_code == 0, "the coordinator is ready")
    found = client.ask(DescribeGroupsRequest(groups=["g"] * MANY), 4)
    assert [each.group_id for each in found.groups] == ["g"]


@pytest.mark.parametrize("keys", [None, ["log.dirs"] * 100])
def test_options_are_described_once(client: RawClient, keys: list[str] | None) -> None:
    resource = DescribeConfigsResource(resource_type=4, resource_name="", configuration_keys=keys)
    [found] = client.ask(DescribeConfigsRequest(resources=[resource] * 1000), 2).results
    names = [each.name for each in found.configs]
    assert len(names) == len(set(names)) > 0


def test_a_partition_that_is_named_twice_has_no_offset(client: RawClient, topic: str) -> None:
    [found] = client.ask(list_offsets(topic, [-1] * MANY), 7).topics
    assert [each.error_code for each in found.partitions] == [KafkaCode.INVALID_REQUEST]
    [found] = client.ask(list_offsets(topic, [-1]), 7).topics
    assert [each.error_code for each in found.partitions] == [KafkaCode.NONE]


def test_many_invented_partitions_are_each_answered(client: RawClient, topic: str) -> None:
    wanted = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(MANY)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)]
    )
    [found] = client.ask(request, 7).topics
    assert [each.partition_index for each in found.partitions] == list(range(MANY))
    codes = [each.error_code for each in found.partitions]
    assert codes == [0, 0] + [KafkaCode.UNKNOWN_TOPIC_OR_PARTITION] * (MANY - 2)


def test_producers_of_a_partition_are_described_once(client: RawClient, topic: str) -> None:
    named = [DescribeProducersTopic(name=topic, partition_indexes=[0, 1] * MANY)]
    [found] = client.ask(DescribeProducersRequest(topics=named), 0).topics
    assert [each.partition_index for each in found.partitions] == [0, 1]


@pytest.mark.parametrize("count", [2, MANY])
def test_a_partition_is_fetched_once(client: RawClient, topic: str, count: int) -> None:
    produce(client, topic, batch(b"v"))
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[partition] * count)]
    )
    [found] = client.ask(request, 11).responses
    [result] = found.partitions
    assert result.error_code == KafkaCode.NONE
    assert result.records


def test_a_fetch_of_many_partitions_waits_for_records(client: RawClient, broker: Broker) -> None:
    broker.create_topic("wide", partitions=600)
    wanted = [
        FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1 << 20) for i in range(600)
    ]
    request = FetchRequest(
        max_wait_ms=20_000, min_bytes=1, topics=[FetchTopic(topic="wide", partitions=wanted)]
    )
    client.send(request, 11)
    with RawClient(broker.bootstrap) as other:
        time.sleep(0.1)
        produce(other, "wide", batch(b"v"), partition=599)
    [found] = client.receive(FetchRequest, 11).responses
    assert [each.partition_index for each in found.partitions if each.records] == [599]


def test_a_fetch_may_not_name_more_partitions_than_a_node_has(broker: Broker, topic: str) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topics = [FetchTopic(topic=topic, partitions=[partition] * 60_000)]
    with RawClient(broker.bootstrap) as leaving:
        leaving.send(FetchRequest(max_wait_ms=0, min_bytes=1, topics=topics), 11)
        assert leaving.is_closed_by_peer()


def test_topics_that_are_named_twice_stay(client: RawClient, topic: str) -> None:
    named = [DeletableTopic(name=topic, topic_id=NO_TOPIC_ID)] * MANY
    [deleted] = client.ask(DeleteTopicsRequest(topics=named, timeout_ms=1000), 6).responses
    assert deleted.error_code == KafkaCode.INVALID_REQUEST
    more = [CreatePartitionsTopic(name=topic, count=3, assignments=None)] * MANY
    [grown] = client.ask(
        CreatePartitionsRequest(topics=more, timeout_ms=1000, validate_only=False), 1
    ).results
    assert grown.error_code == KafkaCode.INVALID_REQUEST
    changes = [AlterConfigsResource(resource_type=2, resource_name=topic, configs=[])] * MANY
    [altered] = client.ask(AlterConfigsRequest(resources=changes, validate_only=False), 1).responses
    assert altered.error_code == KafkaCode.INVALID_REQUEST
    assert client.ask(list_offsets(topic, [-1]), 7).topics[0].partitions[0].error_code == 0


def test_of_two_deletions_in_a_partition_the_last_counts(client: RawClient, topic: str) -> None:
    produce(client, topic, batch(b"a", b"b", b"c"))
    wanted = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (3, 2)]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=wanted)], timeout_ms=1000
    )
    [found] = client.ask(request, 1).topics
    assert [each.low_watermark for each in found.partitions] == [2]


def test_a_request_creates_ten_thousand_partitions_at_most(client: RawClient) -> None:
    wanted = [
        CreatableTopic(
            name=f"a.b_{i}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for i in range(10_001)
    ]
    found = client.ask(CreateTopicsRequest(topics=wanted, validate_only=True), 5).topics
    assert {each.error_code for each in found} == {KafkaCode.POLICY_VIOLATION}
    found = client.ask(CreateTopicsRequest(topics=wanted[:300], validate_only=True), 5).topics
    assert {each.error_code for each in found} == {KafkaCode.NONE}


def test_names_of_one_request_collide(client: RawClient) -> None:
    wanted = [
        CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for name in ("x.y", "x_y")
    ]
    found = client.ask(CreateTopicsRequest(topics=wanted, validate_only=True), 5).topics
    assert [each.error_code for each in found] == [0, KafkaCode.INVALID_TOPIC_EXCEPTION]


def test_a_large_batch_is_searched_by_time_without_the_loop(client: RawClient, topic: str) -> None:
    records = [Record(i, 1_000 + i, None, bytes(1_000)) for i in range(1_000)]
    produce(client, topic, build_batch(records, base_offset=0, codec=Codec.ZSTD))
    [found] = client.ask(list_offsets(topic, [1_700]), 7).topics
    assert [(each.offset, each.timestamp) for each in found.partitions] == [(700, 1_700)]
    [found] = client.ask(list_offsets(topic, [-3]), 7).topics
    assert [(each.offset, each.timestamp) for each in found.partitions] == [(999, 1_999)]


def test_patterns_of_transactional_ids_are_matched_in_linear_time(client: RawClient) -> None:
    ask = FindCoordinatorRequest(key="g", key_type=1)
    wait_until(lambda: client.ask(ask, 1).error_code == 0, "the coordinator is ready")
    for pattern, code in [
        ("(a+)+b", KafkaCode.NONE),
        ("(a", KafkaCode.INVALID_REGULAR_EXPRESSION),
        ("(a)\\1", KafkaCode.INVALID_REGULAR_EXPRESSION),
    ]:
        request = ListTransactionsRequest(
            state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern
        )
        assert client.ask(request, 2).error_code == code


def test_transactional_ids_are_matched_without_the_loop(
    client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile pattern takes a tenth of a second for a long one."""
    is_on_loop: list[bool] = []
    matches = TopicPattern.matches

    def watched(pattern: TopicPattern, text: str) -> bool:
        is_on_loop.append(asyncio._get_running_loop() is not None)
        return matches(pattern, text)

    monkeypatch.setattr(TopicPattern, "matches", watched)
    ask = FindCoordinatorRequest(key="g", key_type=1)
    wait_until(lambda: client.ask(ask, 1).error_code == 0, "the coordinator is ready")
    for number in range(3):
        begin = InitProducerIdRequest(
            transactional_id=f"listed-{number}", transaction_timeout_ms=60_000
        )
        assert client.ask(begin, 4).error_code == KafkaCode.NONE
    request = ListTransactionsRequest(
        state_filters=[], producer_id_filters=[], transactional_id_pattern="listed-[02]"
    )
    found = client.ask(request, 2).transaction_states
    assert [one.transactional_id for one in found] == ["listed-0", "listed-2"]
    assert set(is_on_loop) == {False}


def test_offsets_of_many_partitions_are_fetched_in_parts(client: RawClient, topic: str) -> None:
    ask = FindCoordinatorRequest(key="g", key_type=0)
    wait_until(lambda: client.ask(ask, 1).error_code == 0, "the coordinator is ready")
    topics = [
        OffsetFetchTopic(name=topic, partition_indexes=[*range(MANY), 1]),
        OffsetFetchTopic(name="other", partition_indexes=[0]),
    ]
    groups = [OffsetFetchGroup(group_id=name, topics=topics) for name in ("a", "b", "a")]
    found = client.ask(OffsetFetchRequest(groups=groups), 8).groups
    assert [group.group_id for group in found] == ["a", "b"]
    for group in found:
        assert [each.name for each in group.topics] == [topic, "other"]
        assert [row.partition_index for row in group.topics[0].partitions] == list(range(MANY))
        assert {row.committed_offset for row in group.topics[0].partitions} == {-1}


def test_invented_topics_fill_a_page(client: RawClient) -> None:
    named = [DescribeTopicPartitionsTopic(name=f"t{i:05}") for i in range(MANY)]
    cursor = None
    seen: list[str | None] = []
    while True:
        request = DescribeTopicPartitionsRequest(topics=named, cursor=cursor)
        page = client.ask(request, 0)
        assert len(page.topics) <= 2000
        seen += [each.name for each in page.topics]
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
    assert seen == [each.name for each in named]


def test_a_topic_of_many_partitions_can_be_deleted_and_created_again(client: RawClient) -> None:
    wanted = CreatableTopic(
        name="again", num_partitions=60, replication_factor=1, assignments=[], configs=[]
    )
    for _ in range(3):
        [created] = client.ask(CreateTopicsRequest(topics=[wanted]), 5).topics
        assert created.error_code == KafkaCode.NONE
        ends = client.ask(list_offsets("again", [-1], index=59), 7).topics[0].partitions
        assert [(each.error_code, each.offset) for each in ends] == [(KafkaCode.NONE, 0)]
        produce(client, "again", batch(b"a"), partition=59)
        gone = DeletableTopic(name="again", topic_id=NO_TOPIC_ID)
        [deleted] = client.ask(DeleteTopicsRequest(topics=[gone], timeout_ms=5000), 6).responses
        assert deleted.error_code == KafkaCode.NONE
