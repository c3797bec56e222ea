"""Groups over the wire: every version of every request, and the topic behind them.

Covers broker/handlers, broker/coordination.
"""

import asyncio
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Producer

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.shards import java_hash, partition_for
from millstream.broker.handlers.join_group import first_wait_ms
from millstream.broker.requests.long_answers import UNDER_WAY_MAX
from millstream.errors import KafkaCode
from millstream.model import NO_TOPIC_ID
from millstream.wire.apis.alter_configs import AlterConfigsRequest, AlterConfigsResource
from millstream.wire.apis.api_versions import ApiVersionsRequest
from millstream.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from millstream.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from millstream.wire.apis.delete_groups import DeleteGroupsRequest
from millstream.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millstream.wire.apis.describe_groups import DescribeGroupsRequest
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.heartbeat import HeartbeatRequest
from millstream.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from millstream.wire.apis.join_group import JoinGroupProtocol, JoinGroupRequest
from millstream.wire.apis.leave_group import LeaveGroupMember, LeaveGroupRequest
from millstream.wire.apis.list_groups import ListGroupsRequest
from millstream.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from millstream.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from millstream.wire.apis.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from millstream.wire.apis.offset_fetch import OffsetFetchGroup, OffsetFetchRequest, OffsetFetchTopic
from millstream.wire.apis.sync_group import SyncGroupAssignment, SyncGroupRequest
from millstream.wire.message import Api
from tests.support.broker import Broker
from tests.support.raw_client import RawClient

GROUP = "readers"
SUBSCRIPTION = struct.pack(">hih", 0, 1, 6) + b"orders" + struct.pack(">i", -1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 3}, settings={"offsets.topic.num.partitions": "4"}) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as connected:
        find_coordinator(connected)
        yield connected


def find_coordinator(client: RawClient) -> Any:
    answer = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 4)
    return answer.coordinators[0]


def topic_id(client: RawClient) -> object:
    asked = [MetadataRequestTopic(name="orders", topic_id=NO_TOPIC_ID)]
    answer = client.ask(
        MetadataRequest(
            topics=asked, allow_auto_topic_creation=False, include_topic_authorized_operations=False
        ),
        12,
    )
    return answer.topics[0].topic_id


def test_before_anyone_looked_for_it_this_node_is_no_coordinator() -> None:
    with Broker() as fresh, RawClient(fresh.bootstrap) as client:
        answer = client.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
        assert answer.error_code == KafkaCode.NOT_COORDINATOR
        assert find_coordinator(client).error_code == KafkaCode.NONE
        answer = client.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
        assert answer.error_code == KafkaCode.UNKNOWN_MEMBER_ID


def test_a_group_has_options_of_its_own(client: RawClient) -> None:
    name = "consumer.session.timeout.ms"
    assert _describe_group(client, GROUP) == {name: "45000"}
    assert _alter_group(client, GROUP, "50000") == KafkaCode.NONE
    assert _describe_group(client, GROUP) == {name: "50000"}
    assert _alter_group(client, GROUP, "1") == KafkaCode.INVALID_CONFIG
    assert _alter_group(client, "", "50000") == KafkaCode.INVALID_REQUEST
    assert _describe_group(client, GROUP) == {name: "50000"}
    assert _describe_group(client, "other") == {name: "45000"}
    answer = client.ask(
        AlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=[])],
            validate_only=False,
        ),
        2,
    )
    assert answer.responses[0].error_code == KafkaCode.NONE
    assert _describe_group(client, GROUP) == {name: "45000"}


def _alter_group(client: RawClient, group: str, value: str) -> KafkaCode:
    config = IncrementallyAlterableConfig(
        name="consumer.session.timeout.ms", config_operation=0, value=value
    )
    answer = client.ask(
        IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsResource(
                    resource_type=32, resource_name=group, configs=[config]
                )
            ],
            validate_only=False,
        ),
        1,
    )
    return KafkaCode(answer.responses[0].error_code)


def _describe_group(client: RawClient, group: str) -> dict[str, str]:
    names = ["consumer.session.timeout.ms", "no.such"]
    answer = client.ask(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=32, resource_name=group, configuration_keys=names
                )
            ],
            include_synonyms=False,
            include_documentation=False,
        ),
        4,
    )
    return {entry.name: entry.value for entry in answer.results[0].configs}


def test_a_client_that_learns_its_topics_late_is_known_by_its_software() -> None:
    assert first_wait_ms("kafka-python 3.0.12") > 100
    assert first_wait_ms("librdkafka 2.12.0") == 0
    assert first_wait_ms(None) == 0


def test_the_offsets_topic_is_compacted_and_internal(client: RawClient) -> None:
    resource = DescribeConfigsResource(
        resource_type=2, resource_name="__consumer_offsets", configuration_keys=None
    )
    answer = client.ask(
        DescribeConfigsRequest(
            resources=[resource], include_synonyms=False, include_documentation=False
        ),
        4,
    )
    values = {entry.name: entry.value for entry in answer.results[0].configs}
    assert values["cleanup.policy"] == "compact"
    assert values["segment.bytes"] == "104857600"
    assert values["compression.type"] == "producer"


def test_nobody_else_writes_to_the_offsets_topic(broker: Broker, client: RawClient) -> None:
    problems: list[str] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce(
        "__consumer_offsets", b"x", key=b"k", on_delivery=lambda e, _: problems.append(e.name())
    )
    assert producer.flush(20) == 0
    assert problems == ["TOPIC_EXCEPTION"]


# From Java: the hash code of the name, and Kafka's place for it in 50 partitions. A negative
# hash loses its sign, not its top bit, and the smallest has no positive twin.
@pytest.mark.parametrize(
    ("name", "hashed", "partition"),
    [
        ("", 0, 0),
        ("a", 97, 47),
        ("group", 98629247, 47),
        ("t-9d5841e6", -369144555, 5),
        ("polygenelubricants", -2147483648, 0),
        ("café", 3045921, 21),
        ("😀", 1772899, 49),
    ],
)
def test_groups_are_spread_as_kafka_spreads_them(name: str, hashed: int, partition: int) -> None:
    assert java_hash(name) == hashed
    assert partition_for(name, 50) == partition


def versions(api: Api) -> list[int]:
    return list(range(api.min_version, api.max_version + 1))


@pytest.mark.parametrize("version", versions(OffsetCommitRequest.api))
def test_offsets_are_committed_and_fetched_in_every_version(
    client: RawClient, version: int
) -> None:
    commit(client, f"commits-{version}", 7 + version, version=version)
    for fetch_version in versions(OffsetFetchRequest.api):
        assert fetch(client, f"commits-{version}", fetch_version) == 7 + version


def test_a_group_whose_name_no_record_can_hold_is_not_read(
    broker: Broker, client: RawClient
) -> None:
    with RawClient(broker.bootstrap) as leaving, pytest.raises(ConnectionResetError):
        commit(leaving, "g" * 40_000, 1)
    assert commit(client, "after", 1) == KafkaCode.NONE


def commit(
    client: RawClient, group: str, offset: int, *, version: int = 8, partition: int = 0
) -> int:
    one = OffsetCommitPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=-1,
        committed_metadata="note",
    )
    topic = OffsetCommitTopic(name="orders", topic_id=topic_id(client), partitions=[one])
    answer = client.ask(
        OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            retention_time_ms=-1,
            topics=[topic],
        ),
        version,
    )
    return int(answer.topics[0].partitions[0].error_code)


def fetch(client: RawClient, group: str, version: int) -> int:
    topic = OffsetFetchTopic(name="orders", topic_id=topic_id(client), partition_indexes=[0])
    row = OffsetFetchGroup(group_id=group, member_id=None, member_epoch=-1, topics=[topic])
    answer = client.ask(
        OffsetFetchRequest(group_id=group, topics=[topic], groups=[row], require_stable=False),
        version,
    )
    found = answer.groups[0] if version >= 8 else answer
    partition = found.topics[0].partitions[0]
    assert partition.metadata == "note"
    return int(partition.committed_offset)


def test_a_partition_or_topic_that_is_not_there_is_refused(client: RawClient) -> None:
    code = commit(client, "nobody", 1, partition=9)
    assert code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    listed = client.ask(ListGroupsRequest(states_filter=[], types_filter=[]), 5)
    assert "nobody" not in {row.group_id for row in listed.groups}


def join(client: RawClient, group: str, version: int, member_id: str = "") -> Any:
    return client.ask(
        JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[JoinGroupProtocol(name="range", metadata=SUBSCRIPTION)],
            reason=None,
        ),
        version,
    )


@pytest.mark.parametrize("version", versions(JoinGroupRequest.api))
def test_a_member_lives_in_every_version(client: RawClient, version: int) -> None:
    group = f"life-{version}"
    joined = join(client, group, version)
    if version >= 4:
        assert joined.error_code == KafkaCode.MEMBER_ID_REQUIRED
        joined = join(client, group, version, joined.member_id)
    assert joined.error_code == KafkaCode.NONE
    assert joined.leader == joined.member_id
    member = {"group_id": group, "generation_id": 1, "member_id": joined.member_id}
    synced = client.ask(
        SyncGroupRequest(
            **member,
            assignments=[SyncGroupAssignment(member_id=joined.member_id, assignment=b"mine")],
        ),
        min(version, 5),
    )
    assert (synced.error_code, bytes(synced.assignment)) == (KafkaCode.NONE, b"mine")
    beat = client.ask(HeartbeatRequest(**member), min(version, 4))
    assert beat.error_code == KafkaCode.NONE
    left = client.ask(
        LeaveGroupRequest(
            group_id=group,
            member_id=joined.member_id,
            members=[
                LeaveGroupMember(member_id=joined.member_id, group_instance_id=None, reason=None)
            ],
        ),
        min(version, 5),
    )
    assert left.error_code == KafkaCode.NONE


def test_thousands_of_members_do_not_leave_by_one_request(client: RawClient) -> None:
    members = [
        LeaveGroupMember(member_id=str(number), group_instance_id=None, reason=None)
        for number in range(5_001)
    ]
    left = client.ask(LeaveGroupRequest(group_id="any", members=members), 5)
    assert (left.error_code, left.members) == (KafkaCode.INVALID_REQUEST, [])


@pytest.mark.parametrize("version", versions(JoinGroupRequest.api))
def test_a_refused_join_is_answered_in_every_version(client: RawClient, version: int) -> None:
    answer = join(client, "refused", version, "nobody")
    assert answer.error_code == KafkaCode.UNKNOWN_MEMBER_ID


def test_administrators_are_answered_in_every_version(client: RawClient) -> None:
    commit(client, "administered", 1)
    for version in versions(ListGroupsRequest.api):
        answer = client.ask(ListGroupsRequest(states_filter=[], types_filter=[]), version)
        assert "administered" in {row.group_id for row in answer.groups}
    for version in versions(DescribeGroupsRequest.api):
        known, unknown = client.ask(
            DescribeGroupsRequest(
                groups=["administered", "unknown"], include_authorized_operations=False
            ),
            version,
        ).groups
        assert (known.error_code, known.group_state) == (KafkaCode.NONE, "Empty")
        expected = KafkaCode.GROUP_ID_NOT_FOUND if version >= 6 else KafkaCode.NONE
        assert (unknown.error_code, unknown.group_state) == (expected, "Dead")
    for version in versions(DeleteGroupsRequest.api):
        commit(client, "administered", 1)
        results = client.ask(
            DeleteGroupsRequest(groups_names=["administered", "unknown"]), version
        ).results
        assert [row.error_code for row in results] == [
            KafkaCode.NONE,
            KafkaCode.GROUP_ID_NOT_FOUND,
        ]


def test_offsets_are_deleted(client: RawClient) -> None:
    commit(client, "deleting", 1)
    topic = OffsetDeleteTopic(name="orders", partitions=[OffsetDeletePartition(partition_index=0)])
    answer = client.ask(OffsetDeleteRequest(group_id="deleting", topics=[topic]), 0)
    assert answer.topics[0].partitions[0].error_code == KafkaCode.NONE
    answer = client.ask(OffsetDeleteRequest(group_id="unknown", topics=[topic]), 0)
    assert answer.error_code == KafkaCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("version", versions(ConsumerGroupHeartbeatRequest.api))
def test_the_consumer_protocol_is_served_in_every_version(client: RawClient, version: int) -> None:
    group = f"consumers-{version}"
    heartbeat = {
        "group_id": group,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": ["orders"],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }
    answer = client.ask(
        ConsumerGroupHeartbeatRequest(
            member_id="m" if version else "", member_epoch=0, **heartbeat
        ),
        version,
    )
    assert (answer.error_code, answer.member_epoch) == (KafkaCode.NONE, 1)
    assert answer.assignment.topic_partitions[0].partitions == [0, 1, 2]
    member_id = answer.member_id
    described = client.ask(
        ConsumerGroupDescribeRequest(
            group_ids=[group, "unknown"], include_authorized_operations=False
        ),
        version,
    ).groups
    assert (described[0].group_state, described[0].members[0].member_id) == ("Stable", member_id)
    assert described[1].error_code == KafkaCode.GROUP_ID_NOT_FOUND
    answer = client.ask(
        ConsumerGroupHeartbeatRequest(member_id=member_id, member_epoch=9, **heartbeat), version
    )
    assert answer.error_code == KafkaCode.FENCED_MEMBER_EPOCH
    answer = client.ask(
        ConsumerGroupHeartbeatRequest(member_id=member_id, member_epoch=-1, **heartbeat), version
    )
    assert (answer.error_code, answer.member_epoch) == (KafkaCode.NONE, -1)


def test_consumers_of_a_group_whose_commits_wait_delay_no_other_group(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their answers may wait for a follower for seconds, and all come from one address."""
    commit(client, "quick", 7)
    begun, goes_on = threading.Semaphore(0), threading.Event()
    ask = GroupCoordinators.ask

    def hold(self: GroupCoordinators, group_id: str, *args: Any, **kwargs: Any) -> Any:
        async def answer() -> Any:
            begun.release()
            await asyncio.get_running_loop().run_in_executor(None, goes_on.wait, 60)
            return ask(self, group_id, *args, **kwargs)

        return answer() if group_id == "stuck" else ask(self, group_id, *args, **kwargs)

    monkeypatch.setattr(GroupCoordinators, "ask", hold)
    topic = OffsetFetchTopic(name="orders", partition_indexes=[0])
    row = OffsetFetchGroup(group_id="stuck", member_id=None, member_epoch=-1, topics=[topic])
    stuck = OffsetFetchRequest(groups=[row], require_stable=False)
    with ExitStack() as stack:
        waiting = [stack.enter_context(RawClient(broker.bootstrap)) for _ in range(UNDER_WAY_MAX)]
        try:
            for one in waiting:
                one.send(stuck, 9)
                assert begun.acquire(timeout=20)
            assert fetch(client, "quick", 9) == 7
        finally:
            goes_on.set()
        for one in waiting:
            assert one.receive(OffsetFetchRequest, 9).groups[0].error_code == KafkaCode.NONE


def test_the_feature_that_clients_look_for_is_finalized(client: RawClient) -> None:
    answer = client.ask(
        ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 4
    )
    levels = {row.name: row.max_version_level for row in answer.finalized_features}
    assert levels["group.version"] == 1


def test_everything_is_there_again_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    data_dir = tmp_path_factory.mktemp("restarted")
    settings = {"offsets.topic.num.partitions": "4"}
    first = Broker(topics={"orders": 3}, settings=settings, data_dir=data_dir)
    with first, RawClient(first.bootstrap) as client:
        find_coordinator(client)
        for number in range(20):
            commit(client, f"g{number}", number)
    second = Broker(settings=settings, data_dir=data_dir)
    with second, RawClient(second.bootstrap) as client:
        assert [fetch(client, f"g{number}", 9) for number in range(20)] == list(range(20))
