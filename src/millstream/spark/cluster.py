"""What the driver requests from a cluster: topics, offsets, commits, producer ids.

Every call is bounded by the wall clock and retried while the problem may be temporary: a
broker that is down, a leader that is being elected. A task only asks for leaders here.
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from millstream.client.blocking import Address, Connection
from millstream.client.security import PLAINTEXT, Security
from millstream.errors import KafkaCode, KafkaError, ProtocolError
from millstream.lazy_dataclass import dataclass
from millstream.model import TopicPartition
from millstream.spark.failure import SourceError, Unreachable
from millstream.spark.pool import connect, release
from millstream.wire.apis.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.init_producer_id import InitProducerIdRequest
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

log = logging.getLogger(__name__)

T = TypeVar("T")

EARLIEST: Final = -2
LATEST: Final = -1
PAUSE_SECONDS_MIN: Final = 0.05
PAUSE_SECONDS_MAX: Final = 1.0
_WARN_SECONDS: Final = 5.0
_LEADERS_SECONDS_MAX: Final = 60.0

PASSING_CODES: Final = frozenset(
    {
        KafkaCode.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaCode.LEADER_NOT_AVAILABLE,
        KafkaCode.NOT_LEADER_OR_FOLLOWER,
        KafkaCode.REQUEST_TIMED_OUT,
        KafkaCode.BROKER_NOT_AVAILABLE,
        KafkaCode.REPLICA_NOT_AVAILABLE,
        KafkaCode.NETWORK_EXCEPTION,
        KafkaCode.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaCode.COORDINATOR_NOT_AVAILABLE,
        KafkaCode.NOT_COORDINATOR,
        KafkaCode.NOT_ENOUGH_REPLICAS,
        KafkaCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaCode.NOT_CONTROLLER,
        KafkaCode.KAFKA_STORAGE_ERROR,
        KafkaCode.FENCED_LEADER_EPOCH,
        KafkaCode.UNKNOWN_LEADER_EPOCH,
        KafkaCode.OFFSET_NOT_AVAILABLE,
        KafkaCode.CONCURRENT_TRANSACTIONS,
        KafkaCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    bootstrap: tuple[Address, ...]
    security: Security = PLAINTEXT
    # All tries of one call together, like default.api.timeout.ms.
    call_seconds_max: float = 60.0
    request_seconds_max: float = 30.0


@dataclass(frozen=True, slots=True)
class FetchSettings:
    is_committed_only: bool = False
    fails_on_data_loss: bool = True
    # Without any progress.
    stall_seconds_max: float = 120.0
    wait_ms: int = 500
    response_bytes_max: int = 4 << 20


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    topic_id: uuid.UUID
    # Partition to the id of its leader; -1 while there is none.
    leaders: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    producer_id: int
    epoch: int


def raise_for(code: int, text: str) -> None:
    if code != KafkaCode.NONE:
        raise KafkaError(KafkaCode(code), f"{text}: {KafkaCode(code).name}")


class Cluster:
    """A view of one cluster; cheap to create, holds no connection between calls."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._brokers: dict[int, Address] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._topics_at = 0.0

    # -- asking ---------------------------------------------------------------------------

    def retry(self, what: str, attempt: Callable[[], T], seconds_max: float | None = None) -> T:
        """The result of `attempt`, tried until it works, cannot work, or time is up."""
        started = warned = time.monotonic()
        deadline = started + (seconds_max or self.settings.call_seconds_max)
        pause = PAUSE_SECONDS_MIN
        while True:
            try:
                return attempt()
            except KafkaError as failed:
                if failed.code not in PASSING_CODES:
                    raise SourceError("BROKER_REFUSED", f"{what}: {failed}") from failed
                problem: Exception = failed
            except (OSError, ProtocolError) as failed:
                problem = failed
            self._topics_at = 0.0
            now = time.monotonic()
            if now + pause > deadline:
                raise self._gave_up(what, problem, now - started) from problem
            if now - warned >= _WARN_SECONDS:
                warned = now
                log.warning("%s: %s; trying for %.0f s more", what, problem, deadline - now)
            time.sleep(pause)
            pause = min(pause * 2, PAUSE_SECONDS_MAX)

    def _gave_up(self, what: str, problem: Exception, seconds: float) -> Unreachable:
        servers = ",".join(str(address) for address in self.settings.bootstrap)
        return Unreachable(
            "NO_ANSWER",
            f"{what}: no success in {seconds:.0f} s with the brokers of "
            f"'kafka.bootstrap.servers' ({servers}); the last problem was: {problem}. Check that "
            "they run and that their advertised.listeners can be reached from here; "
            "'kafka.default.api.timeout.ms' sets how long to try",
        )

    def on_any(self, call: Callable[[Connection], T]) -> T:
        """Run `call` on the first broker that can be reached."""
        problem: OSError | None = None
        for address in dict.fromkeys((*self.settings.bootstrap, *self._brokers.values())):
            try:
                return self.on(address, call)
            except OSError as failed:
                problem = failed if problem is None else problem
        assert problem is not None
        raise problem

    def on(self, address: Address, call: Callable[[Connection], T]) -> T:
        connection = connect(address, self.settings.security)
        try:
            result = call(connection)
        except BaseException:
            # A response may be outstanding.
            connection.close()
            raise
        release(connection)
        return result

    # -- topics and leaders ---------------------------------------------------------------

    def describe_topics(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """Topics by name, all of them for None; missing ones are left out."""
        wanted = None if names is None else sorted(set(names))
        return self.retry(
            "asking for the topics", lambda: self.on_any(lambda c: self._metadata(c, wanted))
        )

    def _metadata(self, connection: Connection, names: list[str] | None) -> dict[str, TopicInfo]:
        topics = None
        if names is not None:
            topics = [MetadataRequestTopic(name=name) for name in names]
        answer = connection.ask(
            MetadataRequest(topics=topics, allow_auto_topic_creation=False),
            timeout_seconds=self.settings.request_seconds_max,
        )
        self._brokers = {row.node_id: Address(row.host, row.port) for row in answer.brokers}
        found = {}
        for topic in answer.topics:
            if topic.error_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            raise_for(topic.error_code, f"topic {topic.name}")
            leaders = {row.partition_index: row.leader_id for row in topic.partitions}
            name = topic.name or ""
            found[name] = TopicInfo(name, topic.topic_id, leaders)
        return found

    def leader_of(self, partition: TopicPartition) -> Address:
        """The address of the partition's leader; KafkaError while there is none."""
        if time.monotonic() - self._topics_at > _LEADERS_SECONDS_MAX:
            self._topics = {}
        if partition.topic not in self._topics:
            names = [*self._topics, partition.topic]
            self._topics = self.on_any(lambda c: self._metadata(c, names))
            self._topics_at = time.monotonic()
        topic = self._topics.get(partition.topic)
        leader = -1 if topic is None else topic.leaders.get(partition.partition, -1)
        if topic is None or partition.partition not in topic.leaders:
            code = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(code, f"there is no partition {partition}")
        if leader not in self._brokers:
            raise KafkaError(KafkaCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        return self._brokers[leader]

    def forget_leaders(self) -> None:
        self._topics_at = 0.0

    # -- offsets --------------------------------------------------------------------------

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, is_committed_only: bool
    ) -> dict[TopicPartition, int]:
        """The offset at each timestamp (or EARLIEST, LATEST); -1 if no record is that new."""
        found: dict[TopicPartition, int] = {}

        def attempt() -> dict[TopicPartition, int]:
            missing = [partition for partition in wanted if partition not in found]
            by_leader: dict[Address, list[TopicPartition]] = {}
            for partition in missing:
                by_leader.setdefault(self.leader_of(partition), []).append(partition)
            for address, partitions in by_leader.items():
                part = {partition: wanted[partition] for partition in partitions}
                found.update(
                    self.on(address, lambda c, p=part: self._list_offsets(c, p, is_committed_only))  # type: ignore[misc]  # a default binds the loop's value
                )
            return found

        return self.retry("asking for offsets", attempt)

    def _list_offsets(
        self, connection: Connection, wanted: Mapping[TopicPartition, int], is_committed_only: bool
    ) -> dict[TopicPartition, int]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for partition, timestamp_ms in wanted.items():
            row = ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp_ms)
            topics.setdefault(partition.topic, []).append(row)
        answer = connection.ask(
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=1 if is_committed_only else 0,
                topics=[ListOffsetsTopic(name=name, partitions=topics[name]) for name in topics],
                timeout_ms=round(self.settings.request_seconds_max * 1000),
            ),
            timeout_seconds=self.settings.request_seconds_max,
        )
        found = {}
        for topic in answer.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                raise_for(result.error_code, f"offsets of {partition}")
                found[partition] = result.offset
        return found

    def partition_sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Bytes on the leaders' disks."""
        wanted = set(partitions)

        def attempt() -> dict[TopicPartition, int]:
            sizes: dict[TopicPartition, int] = {}
            for address in {self.leader_of(partition) for partition in wanted}:
                for partition, size in self.on(address, lambda c: _sizes(c, wanted)).items():
                    sizes[partition] = max(size, sizes.get(partition, 0))
            return sizes

        return self.retry("asking for sizes", attempt)

    # -- coordinators ---------------------------------------------------------------------

    def coordinator_of(self, key: str, *, key_type: int) -> Address:
        """The address of the coordinator of a group (0) or a transactional id (1)."""

        def ask(connection: Connection) -> Address:
            request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
            answer = connection.ask(request)
            row = answer.coordinators[0] if answer.coordinators else answer
            raise_for(row.error_code, f"coordinator of {key}")
            return Address(row.host, row.port)

        return self.on_any(ask)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit like a consumer that is not a member, so that lag tools see the group."""
        topics: dict[str, list[OffsetCommitPartition]] = {}
        for partition, offset in offsets.items():
            row = OffsetCommitPartition(
                partition_index=partition.partition,
                committed_offset=offset,
                committed_metadata="",
            )
            topics.setdefault(partition.topic, []).append(row)
        request = OffsetCommitRequest(
            group_id=group,
            topics=[OffsetCommitTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )

        def ask(connection: Connection) -> None:
            answer = connection.ask(request, newest=8)
            for topic in answer.topics:
                for row in topic.partitions:
                    raise_for(row.error_code, f"group {group}, {topic.name}")

        self.retry(
            f"committing group {group}",
            lambda: self.on(self.coordinator_of(group, key_type=0), ask),
        )

    def new_producer(self) -> ProducerIdentity:
        """An identity for idempotent writes without transactions."""

        def ask(connection: Connection) -> ProducerIdentity:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = connection.ask(request, newest=4)
            raise_for(answer.error_code, "producer id")
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return self.retry("asking for a producer id", lambda: self.on_any(ask))


def _sizes(connection: Connection, wanted: set[TopicPartition]) -> dict[TopicPartition, int]:
    topics: dict[str, list[int]] = {}
    for partition in wanted:
        topics.setdefault(partition.topic, []).append(partition.partition)
    rows = [DescribableLogDirTopic(topic=name, partitions=topics[name]) for name in topics]
    answer = connection.ask(DescribeLogDirsRequest(topics=rows))
    return {
        TopicPartition(topic.name, row.partition_index): row.partition_size
        for directory in answer.results
        for topic in directory.topics
        for row in topic.partitions
    }
