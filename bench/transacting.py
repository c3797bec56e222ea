"""A transactional producer that costs next to nothing: frames built once, sent in a circle.

It speaks the newest protocol (KIP-890): partitions join a transaction by being written to,
and each end of one gives the epoch for the next. So of a batch only its producer id, its
epoch and its checksum change from one transaction to the next.
"""

import struct
import time
from typing import Final

from bench import frames
from millstream.errors import KafkaCode
from millstream.model import Codec
from millstream.records.batch import CRC_START
from millstream.records.checksum import crc32c
from millstream.wire.apis.end_txn import EndTxnRequest
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.init_producer_id import InitProducerIdRequest
from tests.support.raw_client import RawClient

RECORD_BYTES: Final = 100
BATCH_RECORDS_MAX: Final = 1_000
IN_FLIGHT: Final = 5
_PRODUCE_VERSION: Final = 12
_END_VERSION: Final = 5
_TRANSACTION_TYPE: Final = 1
_SECONDS_MAX: Final = 60
# Where a batch has its checksum, its producer's id and its epoch.
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_PRODUCER: Final = struct.Struct(">qh")
_PRODUCER_AT: Final = 43
# The coordinator is being made, or reads its log.
_NOT_YET: Final = {
    KafkaCode.COORDINATOR_NOT_AVAILABLE,
    KafkaCode.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaCode.NOT_COORDINATOR,
    KafkaCode.CONCURRENT_TRANSACTIONS,
}


class TransactionalLoad:
    def __init__(self, bootstrap: str, topic: str, *, records: int, transactional_id: str) -> None:
        self._client = RawClient(bootstrap, timeout_seconds=_SECONDS_MAX)
        self._id = transactional_id
        self._find_coordinator()
        self._producer_id, self._epoch = self._init_producer_id()
        self._error_at = 0
        # Per frame: its bytes, and the batch as a part of them.
        self._frames: list[tuple[bytearray, memoryview]] = []
        for first in range(0, records, BATCH_RECORDS_MAX):
            count = min(BATCH_RECORDS_MAX, records - first)
            self._add_frame(topic, first_sequence=first, count=count)

    def close(self) -> None:
        self._client.sock.close()

    def commit_one(self) -> None:
        """Write and commit one transaction."""
        sock, waiting = self._client.sock, 0
        for frame, batch in self._frames:
            if waiting == IN_FLIGHT:
                self._check_written()
                waiting -= 1
            _PRODUCER.pack_into(batch, _PRODUCER_AT, self._producer_id, self._epoch)
            _CRC.pack_into(batch, _CRC_AT, crc32c(batch[CRC_START:]))
            sock.sendall(frame)
            waiting += 1
        for _ in range(waiting):
            self._check_written()
        ended = self._client.ask(
            EndTxnRequest(
                transactional_id=self._id,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                committed=True,
            ),
            _END_VERSION,
        )
        _check(ended.error_code, "EndTxn")
        self._producer_id, self._epoch = ended.producer_id, ended.producer_epoch

    def _check_written(self) -> None:
        answer = self._client.receive_frame()
        _check(struct.unpack_from(">h", answer, self._error_at)[0], "Produce")

    def _add_frame(self, topic: str, *, first_sequence: int, count: int) -> None:
        batch = frames.batch(
            record_bytes=RECORD_BYTES,
            count=count,
            codec=Codec.NONE,
            timestamp_ms=int(time.time() * 1000),
            transactional_sequence=first_sequence,
        )
        load = frames.produce_load(
            topic, [batch], acks=-1, version=_PRODUCE_VERSION, transactional_id=self._id
        )
        [frame], [self._error_at] = load.frames, load.error_at
        changeable = bytearray(frame)
        at = changeable.index(batch)
        self._frames.append((changeable, memoryview(changeable)[at : at + len(batch)]))

    def _find_coordinator(self) -> None:
        def ask() -> int:
            answer = self._client.ask(
                FindCoordinatorRequest(key_type=_TRANSACTION_TYPE, coordinator_keys=[self._id]), 4
            )
            code: int = answer.coordinators[0].error_code
            return code

        while not _is_ready(ask(), "FindCoordinator"):
            time.sleep(0.05)

    def _init_producer_id(self) -> tuple[int, int]:
        while True:
            answer = self._client.ask(
                InitProducerIdRequest(
                    transactional_id=self._id,
                    transaction_timeout_ms=_SECONDS_MAX * 1000,
                    producer_id=-1,
                    producer_epoch=-1,
                ),
                5,
            )
            if _is_ready(answer.error_code, "InitProducerId"):
                return answer.producer_id, answer.producer_epoch
            time.sleep(0.05)


def _is_ready(code: int, what: str) -> bool:
    if code in _NOT_YET:
        return False
    _check(code, what)
    return True


def _check(code: int, what: str) -> None:
    if code != KafkaCode.NONE:
        raise RuntimeError(f"{what} was answered with {KafkaCode(code).name}")
