"""A transactional client by raw frames: old (announces partitions) or new (KIP-890)."""

import time
from dataclasses import dataclass
from typing import Any

from millstream.errors import KafkaCode
from millstream.records.batch import split_batches
from millstream.records.builder import build_batch
from millstream.records.records import Record, read_records
from millstream.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from millstream.wire.apis.end_txn import EndTxnRequest
from millstream.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.init_producer_id import InitProducerIdRequest
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from millstream.wire.apis.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from millstream.wire.message import Message
from tests.support.raw_client import RawClient


def find_coordinator(client: RawClient, key: str, key_type: int) -> None:
    answer = client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
    assert answer.coordinators[0].error_code == KafkaCode.NONE


@dataclass
class RawProducer:
    client: RawClient
    transactional_id: str
    topic: str
    # Version 2 clients get an epoch per transaction; version 0 clients announce partitions.
    is_new: bool = True
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0

    def init(self, *, timeout_ms: int = 60_000, resume: bool = False) -> KafkaCode:
        answer = self.client.ask(
            InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=self.producer_id if resume else -1,
                producer_epoch=self.epoch if resume else -1,
            ),
            4,
        )
        if answer.error_code == KafkaCode.NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequence = 0
        return KafkaCode(answer.error_code)

    def take_over(self) -> None:
        """As clients do: ask again while the transaction before is being ended."""
        find_coordinator(self.client, self.transactional_id, 1)
        while (code := self.init()) is KafkaCode.CONCURRENT_TRANSACTIONS:
            pass
        assert code is KafkaCode.NONE

    def add(self, partition: int = 0) -> KafkaCode:
        answer = self.client.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=self.topic, partitions=[partition])
                ],
            ),
            0,
        )
        [topic] = answer.results_by_topic_v3_and_below
        return KafkaCode(topic.results_by_partition[0].partition_error_code)

    def batch(self, *values: bytes, sequence: int, epoch: int | None = None) -> bytearray:
        now_ms = int(time.time() * 1000)
        return build_batch(
            [Record(i, now_ms, None, value) for i, value in enumerate(values)],
            base_offset=0,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
            is_transactional=True,
        )

    def produce(
        self,
        *values: bytes,
        partition: int = 0,
        sequence: int | None = None,
        epoch: int | None = None,
        version: int | None = None,
    ) -> KafkaCode:
        """The next values, or with a sequence some that come late."""
        data = self.batch(
            *values, sequence=self.sequence if sequence is None else sequence, epoch=epoch
        )
        answer = self.client.ask(
            ProduceRequest(
                transactional_id=self.transactional_id,
                acks=-1,
                timeout_ms=5000,
                topic_data=[
                    ProduceTopicData(
                        name=self.topic,
                        partition_data=[ProducePartitionData(index=partition, records=data)],
                    )
                ],
            ),
            version or (12 if self.is_new else 9),
        )
        code = KafkaCode(answer.responses[0].partition_responses[0].error_code)
        if code is KafkaCode.NONE and sequence is None:
            self.sequence += len(values)
        return code

    def end(self, *, commit: bool = True, epoch: int | None = None) -> KafkaCode:
        """With an epoch: a request that comes late."""
        asked = self.end_request(commit=commit, epoch=epoch)
        answer = self.client.ask(asked, 5 if self.is_new else 2)
        if answer.error_code == KafkaCode.NONE and epoch is None and self.is_new:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequence = 0
        return KafkaCode(answer.error_code)

    def end_request(self, *, commit: bool = True, epoch: int | None = None) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=commit,
        )

    def commit_offset(self, group: str, offset: int, *, version: int | None = None) -> KafkaCode:
        answer = self.client.ask(
            TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=[
                    TxnOffsetCommitTopic(
                        name=self.topic,
                        partitions=[
                            TxnOffsetCommitPartition(
                                partition_index=0,
                                committed_offset=offset,
                                committed_leader_epoch=-1,
                                committed_metadata="",
                            )
                        ],
                    )
                ],
            ),
            version or (5 if self.is_new else 3),
        )
        return KafkaCode(answer.topics[0].partitions[0].error_code)


def fetch(client: RawClient, topic: str, *, partition: int = 0, committed: bool = True) -> Any:
    """One partition's answer to a Fetch from the beginning."""
    answer = client.ask(
        FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 24,
            isolation_level=int(committed),
            session_id=0,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=partition,
                            current_leader_epoch=-1,
                            fetch_offset=0,
                            last_fetched_epoch=-1,
                            log_start_offset=-1,
                            partition_max_bytes=1 << 24,
                        )
                    ],
                )
            ],
            forgotten_topics_data=[],
            rack_id="",
        ),
        11,
    )
    result = answer.responses[0].partitions[0]
    assert isinstance(result, Message)
    assert result.error_code == KafkaCode.NONE
    return result


def values_read(client: RawClient, topic: str, *, partition: int = 0) -> list[bytes]:
    """What a consumer that reads committed records makes of the answer."""
    result = fetch(client, topic, partition=partition)
    aborted = [(one.producer_id, one.first_offset) for one in result.aborted_transactions]
    assert [first for _, first in aborted] == sorted(first for _, first in aborted)
    dropped: set[int] = set()
    values = []
    for batch in split_batches(memoryview(result.records or b"")):
        while aborted and aborted[0][1] <= batch.last_offset:
            dropped.add(aborted.pop(0)[0])
        if batch.is_control:
            dropped.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in dropped):
            values += [record.value or b"" for record in read_records(batch, limit_bytes=1 << 20)]
    return values
