"""What a hostile client costs the others: the worst wait of a client that only pings.

    python -m bench.hostile                     every attack, against this tree
    python -m bench.hostile --src DIR           against another tree's `src`
    python -m bench.hostile --only ListOffsets  attacks whose name contains this

Each attack gets a new node. It ends with its last answer, or after 20 seconds. The time that
the attack itself takes does not matter as long as nobody else notices.
"""

import argparse
import contextlib
import ctypes
import multiprocessing
import os
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from crc32c import crc32c

from millstream.client.protocol import Dialogue
from millstream.model import NO_TOPIC_ID, Codec
from millstream.records.batch import CRC_START
from millstream.records.builder import write_varint
from millstream.records.compression import compress
from millstream.wire.apis.api_versions import ApiVersionsRequest
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
from millstream.wire.apis.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
)
from millstream.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
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
from millstream.wire.apis.sync_group import SyncGroupAssignment, SyncGroupRequest
from millstream.wire.message import Message, Request
from tests.support.node import MillstreamNode
from tests.support.raw_client import RawClient

ATTACK_SECONDS_MAX: Final = 20
_PING_EVERY_SECONDS: Final = 0.002
# One below what a request may name: the topic counts, too.
_NAMED: Final = 199_000


@dataclass(frozen=True, slots=True)
class Attack:
    name: str
    # Frames that are sent one after the other; made before the clock runs.
    frames: Callable[[RawClient], Iterable[bytes]]
    # False: the client disconnects as soon as everything is sent.
    reads_answers: bool = True
    node_options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    worst_wait_ms: float
    grown_mb: float
    answered_bytes: int
    seconds: float
    # Empty, or why there is no answer.
    end: str


# -- the frames --------------------------------------------------------------------------


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


def produce(data: bytes, topic: str = "t") -> bytes:
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


def varint(number: int) -> bytes:
    out = bytearray()
    write_varint(out, number)
    return bytes(out)


def now_ms() -> int:
    return int(time.time() * 1000)


def list_offsets(count: int, timestamp: int) -> bytes:
    return frame(
        ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[
                ListOffsetsTopic(
                    name="t",
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


def find_groups(client: RawClient) -> None:
    """Until the coordinator is ready."""
    ask = FindCoordinatorRequest(key="g", key_type=0)
    for _ in range(100):
        if client.ask(ask, 1).error_code == 0:
            return
        time.sleep(0.1)


# -- the attacks -------------------------------------------------------------------------


def future_bomb(client: RawClient) -> list[bytes]:
    create_topic(client, "t")
    return [produce(header_bomb(now_ms() + 10**10))]


def rejected_records(client: RawClient) -> list[bytes]:
    create_topic(client, "t", cleanup_policy="compact")
    return [produce(tiny_records(now_ms(), 1_000_000))]


def lookup_of_bomb(client: RawClient) -> list[bytes]:
    create_topic(client, "t", max_message_bytes="100000000")
    client.sock.sendall(produce(header_bomb(now_ms() - 1000, 30_000_000)))
    client.receive_frame()
    return [list_offsets(1, 1)] * 3


def many_lookups_of_bomb(client: RawClient) -> list[bytes]:
    lookup_of_bomb(client)
    return [list_offsets(150_000, 1)]


def wide_pattern(client: RawClient) -> list[bytes]:
    create_topic(client, "t")
    find_groups(client)
    return [
        frame(
            ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="member-1",
                member_epoch=0,
                rebalance_timeout_ms=30_000,
                subscribed_topic_names=[],
                subscribed_topic_regex="[\x01-\uffff]{200}",
                topic_partitions=[],
            ),
            1,
        )
    ]


def groups_described(client: RawClient) -> list[bytes]:
    find_groups(client)
    joined = client.ask(join("g", bytes(900_000)), 3)
    client.ask(
        SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[SyncGroupAssignment(member_id=joined.member_id, assignment=b"")],
        ),
        2,
    )
    return [frame(DescribeGroupsRequest(groups=["g"] * 1000), 4)]


def metadata_repeated(client: RawClient) -> list[bytes]:
    create_topic(client, "t", 1000)
    named = [MetadataRequestTopic(name="t", topic_id=NO_TOPIC_ID)] * 2000
    return [frame(MetadataRequest(topics=named, allow_auto_topic_creation=False), 9)]


def topics_validated(client: RawClient) -> list[bytes]:
    wanted = [
        CreatableTopic(
            name=f"a.b_{i}", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        for i in range(60_000)
    ]
    return [frame(CreateTopicsRequest(topics=wanted, validate_only=True), 5)]


def broker_configs(client: RawClient) -> list[bytes]:
    resource = DescribeConfigsResource(resource_type=4, resource_name="0", configuration_keys=None)
    others = [
        DescribeConfigsResource(resource_type=4, resource_name=str(i), configuration_keys=None)
        for i in (1, "")
    ]
    return [
        frame(
            DescribeConfigsRequest(
                resources=[resource, *others] * 1000,
                include_synonyms=True,
                include_documentation=True,
            ),
            3,
        )
    ]


def invented_group_configs(client: RawClient) -> list[bytes]:
    named = [
        DescribeConfigsResource(resource_type=32, resource_name=f"g{i}", configuration_keys=None)
        for i in range(60_000)
    ]
    request = DescribeConfigsRequest(
        resources=named, include_synonyms=True, include_documentation=True
    )
    return [frame(request, 3)]


def offsets_repeated(client: RawClient) -> list[bytes]:
    create_topic(client, "t")
    return [list_offsets(_NAMED, -1)]


def fetch_of(indexes: Iterable[int], *, session_epoch: int = -1) -> bytes:
    return frame(
        FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 24,
            session_epoch=session_epoch,
            topics=[
                FetchTopic(
                    topic="t",
                    partitions=[
                        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                        for index in indexes
                    ],
                )
            ],
        ),
        11,
    )


def fetches_repeated(client: RawClient) -> list[bytes]:
    create_topic(client, "t")
    return [fetch_of([0] * _NAMED)]


def fetches_invented(client: RawClient) -> list[bytes]:
    create_topic(client, "t")
    return [fetch_of(range(_NAMED), session_epoch=0)] * 3


def producers_repeated(client: RawClient) -> list[bytes]:
    create_topic(client, "t")
    topics = [DescribeProducersTopic(name="t", partition_indexes=[0] * _NAMED)]
    return [frame(DescribeProducersRequest(topics=topics), 0)]


def deletions_repeated(client: RawClient) -> list[bytes]:
    named = [DeletableTopic(name="none", topic_id=NO_TOPIC_ID)] * _NAMED
    return [frame(DeleteTopicsRequest(topics=named, timeout_ms=1000), 6)]


def commits_invented(client: RawClient) -> list[bytes]:
    create_topic(client, "t")
    find_groups(client)
    partitions = [
        OffsetCommitPartition(partition_index=i, committed_offset=1, committed_metadata="")
        for i in range(_NAMED)
    ]
    topics = [OffsetCommitTopic(name="t", partitions=partitions)]
    return [frame(OffsetCommitRequest(group_id="g", topics=topics), 6)]


def offsets_invented(client: RawClient) -> list[bytes]:
    create_topic(client, "t")
    find_groups(client)
    topics = [OffsetFetchTopic(name="t", partition_indexes=list(range(_NAMED)))]
    return [frame(OffsetFetchRequest(group_id="g", topics=topics), 5)]


def topics_invented(client: RawClient) -> list[bytes]:
    named = [DescribeTopicPartitionsTopic(name=f"t{i}") for i in range(_NAMED)]
    return [frame(DescribeTopicPartitionsRequest(topics=named), 0)]


def members_leaving(client: RawClient) -> list[bytes]:
    find_groups(client)
    members = [LeaveGroupMember(member_id=f"m{i}", group_instance_id=None) for i in range(_NAMED)]
    return [frame(LeaveGroupRequest(group_id="g", members=members), 3)]


def large_joins(client: RawClient) -> list[bytes]:
    find_groups(client)
    return [frame(join(f"g{i}", bytes(50 << 20)), 3) for i in range(3)]


def invented_producers(client: RawClient) -> list[bytes]:
    create_topic(client, "t")
    found = []
    for producer_id in range(20_000):
        data = bytearray(batch_of(b"\x0c\0\0\0\1\1\0", 1, now_ms(), Codec.NONE))
        data[43:51] = struct.pack(">q", 10**6 + producer_id)
        data[51:57] = struct.pack(">hi", 0, 0)
        data[17:CRC_START] = crc32c(bytes(data[CRC_START:])).to_bytes(4, "big")
        found.append(produce(bytes(data)))
    return found


def tiny_segments(client: RawClient) -> list[bytes]:
    create_topic(client, "t", segment_bytes="100")
    record = batch_of(b"\x0c\0\0\0\1\1\0", 1, now_ms(), Codec.NONE)
    topic = ProduceTopicData(
        name="t", partition_data=[ProducePartitionData(index=0, records=record)] * 1000
    )
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=5000, topic_data=[topic])
    return [frame(request, 9)] * 3


ATTACKS: Final = (
    Attack("Produce: 60 million empty headers, future timestamp", future_bomb),
    Attack("Produce: a million records, each rejected", rejected_records),
    Attack("ListOffsets by time over a stored bomb", lookup_of_bomb),
    Attack("subscription pattern of a wide class, 200 times", wide_pattern),
    Attack("DescribeGroups: 900 KB of metadata, named 1,000 times", groups_described),
    Attack("Metadata: 1,000 partitions, named 2,000 times", metadata_repeated),
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
)


# -- running them ------------------------------------------------------------------------


def ping(port: int, worst: Any, asked_at: Any, is_over: Any) -> None:
    """Ask for the API versions, again and again. Runs as a process."""
    request = frame(ApiVersionsRequest(), 2)
    with socket.create_connection(("127.0.0.1", port), timeout=120) as sock:
        while not is_over.value:
            asked_at.value = began = time.monotonic()
            sock.sendall(request)
            [size] = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
            sock.recv(size, socket.MSG_WAITALL)
            worst.value = max(worst.value, time.monotonic() - began)
            asked_at.value = 0.0
            time.sleep(_PING_EVERY_SECONDS)


class Pinging:
    """The worst wait while the block runs, a wait that has not ended included."""

    def __init__(self, port: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._worst: Any = spawn.Value(ctypes.c_double, 0.0, lock=False)
        self._asked_at: Any = spawn.Value(ctypes.c_double, 0.0, lock=False)
        self._is_over: Any = spawn.Value(ctypes.c_bool, False, lock=False)
        self._process = spawn.Process(
            target=ping, args=(port, self._worst, self._asked_at, self._is_over), daemon=True
        )

    def __enter__(self) -> "Pinging":
        self._process.start()
        while not self._worst.value:
            time.sleep(0.01)
        time.sleep(0.2)
        self._worst.value = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.value = True
        self._process.join(1)
        if self._process.is_alive():
            self._process.kill()

    @property
    def worst_ms(self) -> float:
        asked_at = self._asked_at.value
        waiting = time.monotonic() - asked_at if asked_at else 0.0
        return float(1000 * max(self._worst.value, waiting))


def memory_mb(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise ValueError(field)


def send_all(port: int, frames: list[bytes], *, reads_answers: bool) -> tuple[int, str]:
    """How many bytes came back, and why no more."""
    answered = 0
    deadline = time.monotonic() + ATTACK_SECONDS_MAX
    with socket.create_connection(("127.0.0.1", port), timeout=ATTACK_SECONDS_MAX) as sock:
        try:
            for each in frames:
                sock.sendall(each)
                if not reads_answers:
                    continue
                left = received_bytes(sock, 4, deadline)
                size = struct.unpack(">i", left)[0]
                answered += 4 + size
                discard_bytes(sock, size, deadline)
        except TimeoutError:
            return answered, f"given up after {ATTACK_SECONDS_MAX} s"
        except ConnectionError:
            return answered, "connection closed"
    return answered, "" if reads_answers else "client left"


def received_bytes(sock: socket.socket, size: int, deadline: float) -> bytes:
    sock.settimeout(max(deadline - time.monotonic(), 0.001))
    data = sock.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ConnectionResetError
    return data


def discard_bytes(sock: socket.socket, size: int, deadline: float) -> None:
    while size:
        sock.settimeout(max(deadline - time.monotonic(), 0.001))
        part = len(sock.recv(min(size, 1 << 20)))
        if not part:
            raise ConnectionResetError
        size -= part


def run(attack: Attack, source: str) -> Outcome:
    with tempfile.TemporaryDirectory() as folder, node_of(source, Path(folder)) as node:
        with RawClient(node.bootstrap, timeout_seconds=60) as client:
            frames = list(attack.frames(client))
        port = int(node.bootstrap.rpartition(":")[2])
        with Pinging(port) as pinging:
            before_mb = memory_mb(node.pid, "VmRSS")
            Path(f"/proc/{node.pid}/clear_refs").write_text("5")
            began = time.monotonic()
            answered, end = send_all(port, frames, reads_answers=attack.reads_answers)
            seconds = time.monotonic() - began
            # What an attack leaves behind shows in the seconds after it.
            time.sleep(0.5 if attack.reads_answers else 5)
            worst_ms = pinging.worst_ms
            grown = memory_mb(node.pid, "VmHWM") - before_mb
        return Outcome(worst_ms, grown, answered, seconds, end)


@contextlib.contextmanager
def node_of(source: str, folder: Path) -> Iterator[MillstreamNode]:
    os.environ["PYTHONPATH"] = source
    node = MillstreamNode(folder / "data")
    node.start()
    try:
        yield node
    finally:
        # A node that an attack keeps busy would not stop in time.
        node.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--src", default=str(Path(__file__).parents[1] / "src"))
    parser.add_argument("--only", default="", help="part of an attack's name")
    options = parser.parse_args()
    print(f"{'attack':56}{'worst wait':>12}{'memory':>10}{'answer':>12}{'took':>8}")
    for attack in ATTACKS:
        if options.only not in attack.name:
            continue
        found = run(attack, options.src)
        print(
            f"{attack.name:56}{found.worst_wait_ms:9.0f} ms{found.grown_mb:7.0f} MB"
            f"{found.answered_bytes / 1000:9.0f} KB{found.seconds:6.1f} s  {found.end}",
            flush=True,
        )


if __name__ == "__main__":
    main()
