"""A member of a share group that says exactly what a test wants said, to any broker."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from millstream.errors import KafkaCode
from millstream.records.builder import build_key_values
from millstream.wire.apis.create_topics import (
    CreatableConfig,
    CreatableTopic,
    CreateTopicsRequest,
)
from millstream.wire.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    ShareOffsetsWanted,
)
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from millstream.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
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
from tests.support.raw_client import RawClient

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
_GROUP_RESOURCE = 32
_SET = 0
_JOIN_SECONDS_MAX = 120

# First and last offset, and the count of deliveries.
Range = tuple[int, int, int]


@dataclass
class Fetched:
    """What a fetch answered. Of a partition that is not in the answer nothing is known."""

    code: KafkaCode
    acquired: dict[int, list[Range]] = field(default_factory=dict)
    codes: dict[int, KafkaCode] = field(default_factory=dict)
    acknowledged: dict[int, KafkaCode] = field(default_factory=dict)
    data: dict[int, bytes] = field(default_factory=dict)

    @property
    def ranges(self) -> list[Range]:
        """Of partition 0."""
        return self.acquired.get(0, [])


class ShareMember:
    """`version` is that of ShareFetch and ShareAcknowledge."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, *, partitions: int = 1, version: int = 2
    ) -> None:
        self.group = group
        self.topic = topic
        self.partitions = partitions
        self.version = version
        self.member_id = str(uuid.uuid4())
        # To the leader of partition 0, where records are fetched, and to the group's coordinator.
        self.client = RawClient(bootstrap, client_id="share")
        self.topic_id = topic_id(self.client, topic)
        self.client = _connected(self.client, bootstrap, leader_address(self.client, topic))
        self._coordinator: RawClient | None = None
        self.epoch = 0
        self._member_epoch = 0
        self._is_member = False

    def __enter__(self) -> "ShareMember":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.client.sock.close()
        if self._coordinator is not None:
            self._coordinator.sock.close()

    # -- membership -----------------------------------------------------------------------

    def join(self) -> None:
        """Until all partitions are assigned, whoever else has them."""
        deadline = time.monotonic() + _JOIN_SECONDS_MAX
        while True:
            answer = self._join_once()
            assignment = None if answer is None else answer.assignment
            if assignment is not None and assignment.topic_partitions:
                return
            assert time.monotonic() < deadline, f"nothing is assigned: {answer}"
            # Nothing tells a client that its partitions exist now, but a heartbeat.
            time.sleep(0.05)

    def _join_once(self) -> Any:
        """The answer; None if the coordinator has to be sought again."""
        if self._coordinator is None:
            find = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
            [found] = self.client.ask(find, 6).coordinators
            if found.error_code:
                return None
            try:
                self._coordinator = RawClient(f"{found.host}:{found.port}", client_id="share")
            except ConnectionError:
                return None
        try:
            answer = self.heartbeat([self.topic])
        except ConnectionError:
            self._coordinator = None
            return None
        if answer.error_code:
            self._coordinator.sock.close()
            self._coordinator = None
        return answer

    def heartbeat(self, topics: list[str] | None = None) -> Any:
        answer = (self._coordinator or self.client).ask(
            ShareGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=self._member_epoch,
                subscribed_topic_names=topics,
            ),
            1,
        )
        if answer.error_code == KafkaCode.NONE:
            self._member_epoch = answer.member_epoch
        return answer

    def leave(self) -> None:
        self._member_epoch = -1
        assert self.heartbeat().error_code == KafkaCode.NONE
        self._member_epoch = 0

    # -- records --------------------------------------------------------------------------

    def fetch(
        self,
        *,
        records: int = 500,
        batch_size: int = 500,
        is_exact: bool = False,
        wait_ms: int = 0,
        min_bytes: int = 1,
        acknowledge: Sequence[tuple[int, int, Sequence[int]]] = (),
        renews: bool = False,
        epoch: int | None = None,
        max_bytes: int = 1 << 20,
    ) -> Fetched:
        """`acknowledge` is about partition 0."""
        said = [_batch(*one) for one in acknowledge]
        is_first = (self.epoch if epoch is None else epoch) == 0
        rows = [
            ShareFetchPartition(
                partition_index=index, acknowledgement_batches=said if index == 0 else []
            )
            for index in range(self.partitions)
            if is_first or (index == 0 and said)
        ]
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=wait_ms,
            min_bytes=0 if renews else min_bytes,
            max_bytes=0 if renews else max_bytes,
            max_records=0 if renews else records,
            batch_size=batch_size,
            share_acquire_mode=int(is_exact),
            is_renew_ack=renews,
            topics=[ShareFetchTopic(topic_id=self.topic_id, partitions=rows)] if rows else [],
            forgotten_topics_data=[],
        )
        answer = self.client.ask(request, self.version)
        found = Fetched(KafkaCode(answer.error_code))
        if found.code is KafkaCode.NONE and epoch is None:
            self.epoch += 1
        for topic in answer.responses:
            for row in topic.partitions:
                index = row.partition_index
                found.codes[index] = KafkaCode(row.error_code)
                found.acknowledged[index] = KafkaCode(row.acknowledge_error_code)
                found.data[index] = bytes(row.records)
                if row.acquired_records:
                    found.acquired[index] = [
                        (one.first_offset, one.last_offset, one.delivery_count)
                        for one in row.acquired_records
                    ]
        return found

    def acknowledge(
        self,
        *said: tuple[int, int, Sequence[int]],
        partition: int = 0,
        renews: bool = False,
        epoch: int | None = None,
    ) -> KafkaCode:
        row = ShareAcknowledgePartition(
            partition_index=partition, acknowledgement_batches=[_batch(*one) for one in said]
        )
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renews,
            topics=[ShareAcknowledgeTopic(topic_id=self.topic_id, partitions=[row])],
        )
        answer = self.client.ask(request, self.version)
        if answer.error_code:
            return KafkaCode(answer.error_code)
        if epoch is None:
            self.epoch += 1
        [topic] = answer.responses
        [found] = topic.partitions
        return KafkaCode(found.error_code)

    def close_session(self) -> KafkaCode:
        """The last request of a session: what was acquired is available to others."""
        request = ShareAcknowledgeRequest(
            group_id=self.group, member_id=self.member_id, share_session_epoch=-1, topics=[]
        )
        answer = self.client.ask(request, self.version)
        self.epoch = 0
        return KafkaCode(answer.error_code)


def _batch(first: int, last: int, types: Sequence[int]) -> AcknowledgementBatch:
    return AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))


# -- around it ----------------------------------------------------------------------------


def topic_id(client: RawClient, topic: str) -> uuid.UUID:
    wanted = MetadataRequestTopic(name=topic)
    request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
    deadline = time.monotonic() + _JOIN_SECONDS_MAX
    while True:
        [found] = client.ask(request, 12).topics
        if found.error_code == KafkaCode.NONE and found.partitions:
            return found.topic_id
        assert time.monotonic() < deadline, found
        # Another broker's metadata follows its creation without telling.
        time.sleep(0.02)


def leader_address(client: RawClient, topic: str) -> str:
    """Of partition 0."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    deadline = time.monotonic() + _JOIN_SECONDS_MAX
    while True:
        answer = client.ask(request, 12)
        leaders = {
            row.leader_id
            for found in answer.topics
            for row in found.partitions
            if row.partition_index == 0
        }
        for one in answer.brokers:
            if one.node_id in leaders:
                return f"{one.host}:{one.port}"
        assert time.monotonic() < deadline, answer
        # While leaders are elected, nothing tells when that is done.
        time.sleep(0.05)


def _connected(client: RawClient, here: str, there: str) -> RawClient:
    if here == there:
        return client
    client.sock.close()
    return RawClient(there, client_id="share")


def create_topic(
    client: RawClient, topic: str, partitions: int = 1, *, replicas: int = 1, **options: str
) -> None:
    """In options, underscores stand for dots."""
    new = CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[],
        configs=[
            CreatableConfig(name=name.replace("_", "."), value=value)
            for name, value in options.items()
        ],
    )
    answer = client.ask(
        CreateTopicsRequest(topics=[new], timeout_ms=20_000, validate_only=False), 5
    )
    assert answer.topics[0].error_code == KafkaCode.NONE, answer


def set_group_options(client: RawClient, group: str, **options: str) -> None:
    """Underscores stand for dots."""
    configs = [
        IncrementallyAlterableConfig(
            name=name.replace("_", "."), config_operation=_SET, value=value
        )
        for name, value in options.items()
    ]
    resource = IncrementalAlterConfigsResource(
        resource_type=_GROUP_RESOURCE, resource_name=group, configs=configs
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = client.ask(request, 1)
    assert answer.responses[0].error_code == KafkaCode.NONE, answer


def produce(client: RawClient, topic: str, *sizes: int, partition: int = 0) -> None:
    """A batch for each size, with so many records."""
    for size in sizes:
        batch = build_key_values(
            [(b"k", f"v{number}".encode()) for number in range(size)],
            timestamp_ms=int(time.time() * 1000),
        )
        row = ProducePartitionData(index=partition, records=bytes(batch))
        data = ProduceTopicData(name=topic, partition_data=[row])
        answer = client.ask(ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[data]), 9)
        [found] = answer.responses
        assert found.partition_responses[0].error_code == KafkaCode.NONE, answer


def lag_of(bootstrap: str, group: str, topic: str) -> int:
    """Records that are not finished; -1 while that is not known."""
    wanted = ShareOffsetsWanted(group_id=group, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[wanted])
    with RawClient(bootstrap) as client:
        [found] = client.ask(request, 1).groups
    lags = [row.lag for one in found.topics if one.topic_name == topic for row in one.partitions]
    return sum(lags) if lags and min(lags) >= 0 else -1
