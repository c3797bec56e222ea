"""Requests of a hostile client, each made to cost a node far more than it costs the client."""

import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from crc32c import crc32c

from millstream.client.protocol import Dialogue
from millstream.model import NO_TOPIC_ID, Codec, TopicId
from millstream.records.batch import CRC_START
from millstream.records.builder import write_varint
from millstream.records.compression import compress
from millstream.records.validation import LIGHT
from millstream.wire.apis.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    ShareOffsetsAlteredPartition,
    ShareOffsetsAlteredTopic,
)
from millstream.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from millstream.wire.apis.create_topics import (
    CreatableConfig,
    CreatableTopic,
    CreateTopicsRequest,
)
from millstream.wire.apis.delete_topics import DeletableTopic, DeleteTopicsRequest
from millstream.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millstream.wire.apis.describe_groups import DescribeGroupsRequest
from millstream.wire.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersTopic,
)
from millstream.wire.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    ShareOffsetsWanted,
)
from millstream.wire.apis.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from millstream.wire.apis.fetch import (
    FetchPartition,
    FetchReplicaState,
    FetchRequest,
    FetchTopic,
)
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from millstream.wire.apis.join_group import JoinGroupProtocol, JoinGroupRequest
from millstream.wire.apis.leave_group import LeaveGroupMember, LeaveGroupRequest
from millstream.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millstream.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from millstream.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from millstream.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchTopic
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from millstream.wire.apis.push_telemetry import PushTelemetryRequest
from millstream.wire.apis.share_acknowledge import (
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeTopic,
)
from millstream.wire.apis.share_fetch import (
    AcknowledgementBatch,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchTopic,
)
from millstream.wire.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from millstream.wire.apis.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsSubtopology,
    StreamsTopicInfo,
    StreamsTopology,
)
from millstream.wire.apis.sync_group import SyncGroupAssignment, SyncGroupRequest
from millstream.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from millstream.wire.message import Message, Request
from tests.support.raw_client import RawClient
from tests.support.telemetry import subscribe

# One below what a request may name: the topic counts, too.
NAMED_MAX: Final = 199_000
REPLICA_FETCH_VERSION: Final = 17
_SMALL_RECORD: Final = b"\x0c\0\0\0\1\1\0"


@dataclass(frozen=True, slots=True)
class Aim:
    """The topic and the group of one attack, and how much of its size is sent."""

    topic: str = "t"
    group: str = "g"
    scale: float = 1.0

    def many(self, largest: int) -> int:
        return max(1, int(largest * self.scale))


@dataclass(frozen=True, slots=True)
class Attack:
    name: str
    # Frames that are sent one after the other; made before the clock runs.
    frames: Callable[[RawClient, Aim], list[bytes]]
    # False: the client disconnects as soon as everything is sent.
    reads_answers: bool = True


def frame(request: Request[Message], version: int) -> bytes:
    return bytes(Dialogue("hostile").frame(request, version))


def create_topic(client: RawClient, name: str, partitions: int = 1, **configs: str) -> None:
    client.ask(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    assignments=[],
                    configs=[
                        CreatableConfig(name=option.replace("_", "."), value=value)
                        for option, value in configs.items()
                    ],
                )
            ],
        ),
        5,
    )


def batch_of(records: bytes, count: int, timestamp_ms: int, codec: Codec) -> bytes:
    """A batch around records that no builder would make."""
    body = compress(codec, records)
    checked = (
        struct.pack(">hiqqqhii", codec, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count)
        + body
    )
    crc = crc32c(checked)
    return struct.pack(">qiibI", 0, len(checked) + 9, 0, 2, crc) + checked


def batch_with(value: bytes, timestamp_ms: int, codec: Codec = Codec.NONE) -> bytes:
    """One record with this value."""
    record = b"\0\0\0\1" + varint(len(value)) + value + b"\0"
    return batch_of(varint(len(record)) + record, 1, timestamp_ms, codec)


def small_batch(timestamp_ms: int) -> bytes:
    """One record without key and value."""
    return batch_of(_SMALL_RECORD, 1, timestamp_ms, Codec.NONE)


def header_bomb(timestamp_ms: int, headers: int = 60_000_000) -> bytes:
    """One record with so many empty headers, which compress to next to nothing."""
    record = b"\0\0\0\1\1" + varint(headers) + bytes(2 * headers)
    return batch_of(varint(len(record)) + record, 1, timestamp_ms, Codec.ZSTD)


def tiny_records(timestamp_ms: int, count: int) -> bytes:
    records = b"".join(
        varint(len(record)) + record
        for record in (b"\0\0" + varint(i) + b"\1\1\0" for i in range(count))
    )
    return batch_of(records, count, timestamp_ms, Codec.ZSTD)


def produce(data: bytes, topic: str) -> bytes:
    return frame(
        ProduceRequest(
            transactional_id=None,
            acks=1,
            timeout_ms=5000,
            topic_data=[
                ProduceTopicData(
                    name=topic, partition_data=[ProducePartitionData(index=0, records=data)]
                )
            ],
        ),
        9,
    )


def produce_many(batches: Iterable[bytes], topic: str) -> bytes:
    """All of them to one partition, in one request."""
    rows = [ProducePartitionData(index=0, records=data) for data in batches]
    named = ProduceTopicData(name=topic, partition_data=rows)
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=5000, topic_data=[named])
    return frame(request, 9)


def varint(number: int) -> bytes:
    out = bytearray()
    write_varint(out, number)
    return bytes(out)


def now_ms() -> int:
    return int(time.time() * 1000)


def list_offsets(topic: str, count: int, timestamp: int) -> bytes:
    return frame(
        ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=0, current_leader_epoch=-1, timestamp=timestamp
                        )
                    ]
                    * count,
                )
            ],
        ),
        7,
    )


def join(group: str, metadata: bytes, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupProtocol(name="range", metadata=metadata)],
    )


def find_group(client: RawClient, group: str) -> None:
    """Until the coordinator is ready."""
    ask = FindCoordinatorRequest(key=group, key_type=0)
    for _ in range(100):
        if client.ask(ask, 1).error_code == 0:
            return
        time.sleep(0.1)


# -- the attacks -------------------------------------------------------------------------


def future_bomb(client: RawClient, aim: Aim) -> list[bytes]:
    create_topic(client, aim.topic)
    return [produce(header_bomb(now_ms() + 10**10, aim.many(60_000_000)), aim.topic)]


def rejected_records(client: RawClient, aim: Aim) -> list[bytes]:
    create_topic(client, aim.topic, cleanup_policy="compact")
    return [produce(tiny_records(now_ms(), aim.many(1_000_000)), aim.topic)]


def many_small_bombs(client: RawClient, aim: Aim) -> list[bytes]:
    """Each batch unpacks to as much as is unpacked at once of a whole request."""
    create_topic(client, aim.topic)
    data = batch_with(bytes(LIGHT - 100), now_ms(), Codec.ZSTD)
    return [produce_many([data] * 98, aim.topic)] * aim.many(10)


def batches_of_garbage(client: RawClient, aim: Aim) -> list[bytes]:
    """Their checksums are right, and every reader would stumble over them if they were stored."""
    create_topic(client, aim.topic)
    found = []
    for codec in (Codec.NONE, Codec.ZSTD):
        found.append(produce(batch_of(b"\xff" * 900_000, 1, now_ms(), codec), aim.topic))
        found.append(produce(batch_of(_SMALL_RECORD, 2**31 - 1, now_ms(), codec), aim.topic))
    return found * aim.many(50)


def lookup_of_bomb(client: RawClient, aim: Aim) -> list[bytes]:
    create_topic(client, aim.topic, max_message_bytes="100000000")
    client.sock.sendall(produce(header_bomb(now_ms() - 1000, aim.many(30_000_000)), aim.topic))
    client.receive_frame()
    return [list_offsets(aim.topic, 1, 1)] * 3


def many_lookups_of_bomb(client: RawClient, aim: Aim) -> list[bytes]:
    lookup_of_bomb(client, aim)
    return [list_offsets(aim.topic, aim.many(150_000), 1)]


def wide_pattern(client: RawClient, aim: Aim) -> list[bytes]:
    create_topic(client, aim.topic)
    find_group(client, aim.group)
    return [
        frame(
            ConsumerGroupHeartbeatRequest(
                group_id=aim.group,
                member_id="member-1",
                member_epoch=0,
                rebalance_timeout_ms=30_000,
                subscribed_topic_names=[],
                subscribed_topic_regex=f"[\x01-\uffff]{{{aim.many(200)}}}",
                topic_partitions=[],
            ),
            1,
        )
    ]


def groups_described(client: RawClient, aim: Aim) -> list[bytes]:
    find_group(client, aim.group)
    joined = client.ask(join(aim.group, bytes(aim.many(900_000))), 3)
    client.ask(
        SyncGroupRequest(
            group_id=aim.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupAssignment(member_id=joined.member_id, assignment=b"")],
        ),
        2,
    )
    return [frame(DescribeGroupsRequest(groups=[aim.group] * aim.many(1000)), 4)]


def metadata_repeated(client: RawClient, aim: Aim) -> list[bytes]:
    create_topic(client, aim.topic, aim.many(1000))
    named = [MetadataRequestTopic(name=aim.topic, topic_id=NO_TOPIC_ID)] * aim.many(2000)
    return [frame(MetadataRequest(topics=named, allow_auto_topic_creation=False), 9)]


def topics_created_by_asking(client: RawClient, aim: Aim) -> list[bytes]:
    # More than one request may create: the attack is that the node looks at all of them.
    count = 10_001 + aim.many(189_000)
    named = [MetadataRequestTopic(name=f"{aim.topic}.{i}") for i in range(count)]
    return [frame(MetadataRequest(topics=named), 9)]


def topics_validated(client: RawClient, aim: Aim) -> list[bytes]:
    wanted = [
        CreatableTopic(
            name=f"{aim.topic}.b_{i}",
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[],
        )
        for i in range(aim.many(60_000))
    ]
    return [frame(CreateTopicsRequest(topics=wanted, validate_only=True), 5)]


def broker_configs(client: RawClient, aim: Aim) -> list[bytes]:
    resource = DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=None)
    others = [
        DescribeConfigsResource(resource_type=4, resource_name=str(i), configuration_keys=None)
        for i in (1, "")
    ]
    return [
        frame(
            DescribeConfigsRequest(
                resources=[resource, *others] * aim.many(1000),
                include_synonyms=True,
                include_documentation=True,
            ),
            3,
        )
    ]


def invented_group_configs(client: RawClient, aim: Aim) -> list[bytes]:
    named = [
        DescribeConfigsResource(resource_type=32, resource_name=f"g{i}", configuration_keys=None)
        for i in range(aim.many(60_000))
    ]
    request = DescribeConfigsRequest(
        resources=named, include_synonyms=True, include_documentation=True
    )
    return [frame(request, 3)]


def offsets_repeated(client: RawClient, aim: Aim) -> list[bytes]:
    create_topic(client, aim.topic)
    return [list_offsets(aim.topic, aim.many(NAMED_MAX), -1)]


def fetch_of(topic: str, indexes: Iterable[int], *, session_epoch: int = -1) -> bytes:
    return frame(
        FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 24,
            session_epoch=session_epoch,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                        for index in indexes
                    ],
                )
            ],
        ),
        11,
    )


def fetches_of_a_replica(client: RawClient, aim: Aim) -> list[bytes]:
    """As node 2, in whichever of its lives: what it claims to have would count as replicated."""
    create_topic(client, aim.topic)
    named = [MetadataRequestTopic(name=aim.topic, topic_id=NO_TOPIC_ID)]
    asked = MetadataRequest(topics=named, allow_auto_topic_creation=False)
    [topic] = client.ask(asked, 12).topics
    return [
        frame(
            FetchRequest(
                replica_state=FetchReplicaState(replica_id=2, replica_epoch=epoch),
                max_wait_ms=0,
                min_bytes=0,
                topics=[
                    FetchTopic(
                        topic_id=topic.topic_id,
                        partitions=[
                            FetchPartition(
                                partition=0, fetch_offset=2**40, partition_max_bytes=1 << 20
                            )
                        ],
                    )
                ],
            ),
            REPLICA_FETCH_VERSION,
        )
        for epoch in range(aim.many(1000))
    ]


def commit_markers(client: RawClient, aim: Aim) -> list[bytes]:
    """Only coordinators decide that transactions are committed."""
    create_topic(client, aim.topic)
    topics = [WritableTxnMarkerTopic(name=aim.topic, partition_indexes=[0] * aim.many(NAMED_MAX))]
    marker = WritableTxnMarker(
        producer_id=1,
        producer_epoch=0,
        transaction_result=True,
        topics=topics,
        coordinator_epoch=0,
    )
    return [frame(WriteTxnMarkersRequest(markers=[marker]), 1)]


def fetches_repeated(client: RawClient, aim: Aim) -> list[bytes]:
    create_topic(client, aim.topic)
    return [fetch_of(aim.topic, [0] * aim.many(NAMED_MAX))]


def fetches_invented(client: RawClient, aim: Aim) -> list[bytes]:
    create_topic(client, aim.topic)
    return [fetch_of(aim.topic, range(aim.many(NAMED_MAX)), session_epoch=0)] * 3


def producers_repeated(client: RawClient, aim: Aim) -> list[bytes]:
    create_topic(client, aim.topic)
    topics = [DescribeProducersTopic(name=aim.topic, partition_indexes=[0] * aim.many(NAMED_MAX))]
    return [frame(DescribeProducersRequest(topics=topics), 0)]


def deletions_repeated(client: RawClient, aim: Aim) -> list[bytes]:
    named = [DeletableTopic(name="none", topic_id=NO_TOPIC_ID)] * aim.many(NAMED_MAX)
    return [frame(DeleteTopicsRequest(topics=named, timeout_ms=1000), 6)]


def commits_invented(client: RawClient, aim: Aim) -> list[bytes]:
    create_topic(client, aim.topic)
    find_group(client, aim.group)
    partitions = [
        OffsetCommitPartition(partition_index=i, committed_offset=1, committed_metadata="")
        for i in range(aim.many(NAMED_MAX))
    ]
    topics = [OffsetCommitTopic(name=aim.topic, partitions=partitions)]
    return [frame(OffsetCommitRequest(group_id=aim.group, topics=topics), 6)]


def offsets_invented(client: RawClient, aim: Aim) -> list[bytes]:
    create_topic(client, aim.topic)
    find_group(client, aim.group)
    topics = [OffsetFetchTopic(name=aim.topic, partition_indexes=list(range(aim.many(NAMED_MAX))))]
    return [frame(OffsetFetchRequest(group_id=aim.group, topics=topics), 5)]


def topics_invented(client: RawClient, aim: Aim) -> list[bytes]:
    named = [DescribeTopicPartitionsTopic(name=f"t{i}") for i in range(aim.many(NAMED_MAX))]
    return [frame(DescribeTopicPartitionsRequest(topics=named), 0)]


def members_leaving(client: RawClient, aim: Aim) -> list[bytes]:
    find_group(client, aim.group)
    members = [
        LeaveGroupMember(member_id=f"m{i}", group_instance_id=None)
        for i in range(aim.many(NAMED_MAX))
    ]
    return [frame(LeaveGroupRequest(group_id=aim.group, members=members), 3)]


def large_joins(client: RawClient, aim: Aim) -> list[bytes]:
    find_group(client, aim.group)
    return [frame(join(f"{aim.group}-{i}", bytes(aim.many(50 << 20))), 3) for i in range(3)]


def invented_producers(client: RawClient, aim: Aim) -> list[bytes]:
    create_topic(client, aim.topic)
    found = []
    for producer_id in range(aim.many(20_000)):
        data = bytearray(small_batch(now_ms()))
        data[43:51] = struct.pack(">q", aim.many(10**9) + producer_id)
        data[51:57] = struct.pack(">hi", 0, 0)
        data[17:CRC_START] = crc32c(bytes(data[CRC_START:])).to_bytes(4, "big")
        found.append(produce(bytes(data), aim.topic))
    return found


def tiny_segments(client: RawClient, aim: Aim) -> list[bytes]:
    create_topic(client, aim.topic, segment_bytes="100")
    return [produce_many([small_batch(now_ms())] * aim.many(1000), aim.topic)] * 3


def tiny_indexes(client: RawClient, aim: Aim) -> list[bytes]:
    create_topic(client, aim.topic, segment_index_bytes="4", index_interval_bytes="0")
    return [produce_many([small_batch(now_ms())] * aim.many(1000), aim.topic)] * 3


def records_of_all_times(client: RawClient, aim: Aim) -> list[bytes]:
    create_topic(client, aim.topic, segment_ms="1")
    began_ms = now_ms() - 10**10
    batches = [small_batch(began_ms + 1000 * number) for number in range(3 * aim.many(1000))]
    part = len(batches) // 3
    return [produce_many(batches[start:][:part], aim.topic) for start in (0, part, 2 * part)]


def telemetry_of_fields(client: RawClient, aim: Aim) -> list[bytes]:
    """Pushes of new clients, each of which is a megabyte of the smallest fields."""
    subscribe(client, {"metrics": "*"})
    metrics = compress(Codec.ZSTD, b"\x10\x00" * 500_000)
    found = []
    for _ in range(aim.many(20)):
        given = client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=NO_TOPIC_ID), 0)
        request = PushTelemetryRequest(
            client_instance_id=given.client_instance_id,
            subscription_id=given.subscription_id,
            terminating=False,
            compression_type=Codec.ZSTD,
            metrics=metrics,
        )
        found.append(frame(request, 0))
    return found


def share_member(client: RawClient, aim: Aim) -> str:
    """The id of a new member of a share group."""
    find_group(client, aim.group)
    member_id = str(uuid4())
    heartbeat = ShareGroupHeartbeatRequest(
        group_id=aim.group,
        member_id=member_id,
        member_epoch=0,
        subscribed_topic_names=[aim.topic],
    )
    client.ask(heartbeat, 1)
    return member_id


def first_share_fetch(
    member_id: str, aim: Aim, partitions: int, topic_id: TopicId = NO_TOPIC_ID
) -> bytes:
    rows = [
        ShareFetchPartition(partition_index=index, acknowledgement_batches=[])
        for index in range(partitions)
    ]
    return share_fetch(member_id, aim, 0, [ShareFetchTopic(topic_id=topic_id, partitions=rows)])


def later_share_fetch(member_id: str, aim: Aim, epoch: int) -> bytes:
    """Of all partitions of the session."""
    return share_fetch(member_id, aim, epoch, [])


def share_fetch(member_id: str, aim: Aim, epoch: int, topics: list[ShareFetchTopic]) -> bytes:
    request = ShareFetchRequest(
        group_id=aim.group,
        member_id=member_id,
        share_session_epoch=epoch,
        max_wait_ms=0,
        min_bytes=0,
        max_records=500,
        batch_size=500,
        topics=topics,
        forgotten_topics_data=[],
    )
    return frame(request, 1)


def share_fetches_invented(client: RawClient, aim: Aim) -> list[bytes]:
    create_topic(client, aim.topic)
    return [first_share_fetch(share_member(client, aim), aim, aim.many(NAMED_MAX))]


def share_sessions_invented(client: RawClient, aim: Aim) -> list[bytes]:
    """Of invented members, each with as many partitions as one may have."""
    create_topic(client, aim.topic)
    return [first_share_fetch(str(uuid4()), aim, 5_000) for _ in range(aim.many(300))]


def share_fetches_of_nothing(client: RawClient, aim: Aim) -> list[bytes]:
    """Short requests in a session whose partitions are not there, or were not begun."""
    create_topic(client, aim.topic, aim.many(1000))
    named = [MetadataRequestTopic(name=aim.topic, topic_id=NO_TOPIC_ID)]
    asked = MetadataRequest(topics=named, allow_auto_topic_creation=False)
    [topic] = client.ask(asked, 12).topics
    member_id = str(uuid4())
    return [
        first_share_fetch(member_id, aim, 5_000, topic.topic_id),
        *(later_share_fetch(member_id, aim, epoch + 1) for epoch in range(aim.many(300))),
    ]


def share_offsets_repeated(client: RawClient, aim: Aim) -> list[bytes]:
    """Of one group with many partitions, again and again."""
    partitions = aim.many(1000)
    create_topic(client, aim.topic, partitions)
    find_group(client, aim.group)
    rows = [
        ShareOffsetsAlteredPartition(partition_index=index, start_offset=0)
        for index in range(partitions)
    ]
    topic = ShareOffsetsAlteredTopic(topic_name=aim.topic, partitions=rows)
    client.ask(AlterShareGroupOffsetsRequest(group_id=aim.group, topics=[topic]), 0)
    wanted = [ShareOffsetsWanted(group_id=aim.group, topics=None)] * aim.many(2000)
    return [frame(DescribeShareGroupOffsetsRequest(groups=wanted), 1)]


def share_acknowledgements_invented(client: RawClient, aim: Aim) -> list[bytes]:
    """In partitions that are not there, and of offsets that nobody has."""
    create_topic(client, aim.topic)
    found = []
    for partitions, batches in ((aim.many(60_000), 1), (1, aim.many(60_000))):
        member_id = share_member(client, aim)
        rows = [
            ShareAcknowledgePartition(
                partition_index=index,
                acknowledgement_batches=[
                    AcknowledgementBatch(first_offset=n, last_offset=n, acknowledge_types=[1])
                    for n in range(batches)
                ],
            )
            for index in range(partitions)
        ]
        request = ShareAcknowledgeRequest(
            group_id=aim.group,
            member_id=member_id,
            share_session_epoch=1,
            topics=[ShareAcknowledgeTopic(topic_id=NO_TOPIC_ID, partitions=rows)],
        )
        found += [first_share_fetch(member_id, aim, 1), frame(request, 1)]
    return found


def large_topologies(client: RawClient, aim: Aim) -> list[bytes]:
    """Of invented topics, in one part and in many; and with a changelog for each part."""
    create_topic(client, aim.topic)
    find_group(client, aim.group)
    names = [f"{number:x}" for number in range(aim.many(60_000))]
    changelogs = [
        StreamsTopicInfo(name=f"c{name}", partitions=0, replication_factor=-1, topic_configs=[])
        for name in names[:20_000]
    ]
    topologies = [
        [subtopology("0", names, [])],
        [subtopology(name, [aim.topic], []) for name in names[:20_000]],
        [subtopology("0", [aim.topic], changelogs)],
    ]
    return [
        frame(
            StreamsGroupHeartbeatRequest(
                group_id=f"{aim.group}-{number}",
                member_id=str(uuid4()),
                member_epoch=0,
                endpoint_information_epoch=0,
                rebalance_timeout_ms=60_000,
                process_id="p",
                topology=StreamsTopology(epoch=1, subtopologies=parts),
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
            ),
            0,
        )
        for number, parts in enumerate(topologies)
    ]


def subtopology(
    name: str, sources: list[str], changelogs: list[StreamsTopicInfo]
) -> StreamsSubtopology:
    return StreamsSubtopology(
        subtopology_id=name,
        source_topics=sources,
        source_topic_regex=[],
        state_changelog_topics=changelogs,
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )


ATTACKS: Final = (
    Attack("Produce: 60 million empty headers, future timestamp", future_bomb),
    Attack("Produce: a million records, each rejected", rejected_records),
    Attack("Produce: 98 batches of 100 bytes, 1 MB each unpacked", many_small_bombs),
    Attack("ListOffsets by time over a stored bomb", lookup_of_bomb),
    Attack("subscription pattern of a wide class, 200 times", wide_pattern),
    Attack("DescribeGroups: 900 KB of metadata, named 1,000 times", groups_described),
    Attack("Metadata: 1,000 partitions, named 2,000 times", metadata_repeated),
    Attack("Metadata: 199,000 topics to be created", topics_created_by_asking),
    Attack("CreateTopics: 60,000 topics, validated only", topics_validated),
    Attack("DescribeConfigs: the broker, named 2,000 times", broker_configs),
    Attack("DescribeConfigs: 60,000 invented groups", invented_group_configs),
    Attack("ListOffsets: one partition 199,000 times", offsets_repeated),
    Attack("Fetch: one partition 199,000 times", fetches_repeated),
    Attack("Fetch: 199,000 invented partitions in a session", fetches_invented),
    Attack("DescribeProducers: one partition 199,000 times", producers_repeated),
    Attack("DeleteTopics: one topic 199,000 times", deletions_repeated),
    Attack("OffsetCommit: 199,000 invented partitions", commits_invented),
    Attack("OffsetFetch: 199,000 invented partitions", offsets_invented),
    Attack("DescribeTopicPartitions: 199,000 invented topics", topics_invented),
    Attack("LeaveGroup: 199,000 invented members", members_leaving),
    Attack("ListOffsets: 150,000 lookups of a bomb, client gone", many_lookups_of_bomb, False),
    Attack("JoinGroup: three groups with 50 MB of metadata", large_joins, False),
    Attack("Produce: 20,000 invented producer ids", invented_producers),
    Attack("Produce: segment.bytes=100, three requests", tiny_segments),
    Attack("Produce: segment.index.bytes=4, three requests", tiny_indexes),
    Attack("Produce: segment.ms=1 and records of all times", records_of_all_times),
    Attack("Produce: batches of garbage and of 2^31-1 records", batches_of_garbage),
    Attack("Fetch: as replica 2, 1,000 guessed broker epochs", fetches_of_a_replica),
    Attack("WriteTxnMarkers: COMMIT from a client, 199,000 times", commit_markers),
    Attack("PushTelemetry: 500,000 fields, 20 times", telemetry_of_fields),
    Attack("ShareFetch: 199,000 invented partitions", share_fetches_invented),
    Attack("ShareFetch: 300 sessions of invented members", share_sessions_invented),
    Attack("ShareFetch: 300 short requests for nothing", share_fetches_of_nothing),
    Attack("DescribeShareGroupOffsets: a group, 2,000 times", share_offsets_repeated),
    Attack("ShareAcknowledge: 60,000 invented offsets", share_acknowledgements_invented),
    Attack("StreamsGroupHeartbeat: topologies of 60,000 topics", large_topologies),
)
