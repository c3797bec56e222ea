"""Batches of a partition are taken once and in order, whatever their answers are."""

from collections import deque

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.errors import KafkaCode
from millstream.model import Codec, TopicPartition
from millstream.records.batch import BatchView
from millstream.records.records import read_records
from millstream.records.rows import Producer
from millstream.spark.partition_queue import IN_FLIGHT_MAX, Batch, PartitionQueue, Verdict
from millstream.spark.routing import Routed, Router

IDEMPOTENT = Producer(7, 0)
OUT_OF_ORDER = KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def routed(*values: str) -> Routed:
    router = Router(lambda topic: 1, topic="t", has_headers=False, first_partition=0)
    [only] = router.route(pa.record_batch({"value": pa.array(values, pa.string())}))
    return only


def queue_of(
    *runs: tuple[str, ...], producer: Producer = IDEMPOTENT, bytes_max: int = 1000
) -> PartitionQueue:
    queue = PartitionQueue(TopicPartition("t", 0), producer, Codec.NONE, bytes_max)
    for run in runs:
        queue.add(routed(*run))
    return queue


def send(queue: PartitionQueue) -> Batch:
    batch = queue.peek(0)
    queue.mark_sent()
    return batch


def send_all(queue: PartitionQueue) -> list[Batch]:
    sent = []
    while queue.can_send:
        sent.append(send(queue))
    return sent


def values_of(batch: Batch) -> list[str]:
    view = BatchView(memoryview(batch.header + batch.records))
    return [
        bytes(record.value or b"").decode() for record in read_records(view, limit_bytes=1 << 20)
    ]


def test_the_first_batch_goes_alone_and_then_five_are_on_their_way() -> None:
    queue = queue_of(*[(str(number),) for number in range(9)])
    assert [values_of(batch) for batch in send_all(queue)] == [["0"]]
    assert queue.take(KafkaCode.NONE) is Verdict.TAKEN
    assert [batch.base_sequence for batch in send_all(queue)] == [1, 2, 3, 4, 5]
    queue.take(KafkaCode.NONE)
    assert [values_of(batch) for batch in send_all(queue)] == [["6"]]


def test_without_sequence_numbers_one_batch_is_on_its_way() -> None:
    queue = queue_of(("a",), ("b",), ("c",), producer=Producer())
    for _ in range(3):
        assert len(send_all(queue)) == 1
        queue.take(KafkaCode.NONE)
    assert queue.rows_taken == 3
    assert queue.held_bytes == 0


def test_behind_a_failure_answers_are_ignored_and_the_same_batches_go_again() -> None:
    queue = queue_of(*[(str(number),) for number in range(5)])
    send(queue)
    queue.take(KafkaCode.NONE)
    first = send_all(queue)
    assert queue.take(KafkaCode.NOT_LEADER_OR_FOLLOWER) is Verdict.FAILED
    # Not before the last answer: what comes second must not be taken first.
    assert not queue.can_send
    assert queue.take(OUT_OF_ORDER) is Verdict.IGNORED
    assert queue.take(OUT_OF_ORDER) is Verdict.IGNORED
    assert not queue.can_send
    assert queue.take(OUT_OF_ORDER) is Verdict.IGNORED
    assert send_all(queue) == first[:1]
    queue.take(KafkaCode.NONE)
    assert send_all(queue) == first[1:]


def test_the_oldest_batch_out_of_order_is_a_failure_of_its_own() -> None:
    queue = queue_of(("a",))
    send(queue)
    assert queue.take(OUT_OF_ORDER) is Verdict.FAILED


def test_a_batch_that_is_too_large_is_split_and_so_are_those_behind_it() -> None:
    rows = [tuple(f"{run}-{n}" for n in range(8)) for run in range(3)]
    queue = queue_of(("first",), *rows)
    send(queue)
    queue.take(KafkaCode.NONE)
    assert [batch.count for batch in send_all(queue)] == [8, 8, 8]
    assert queue.take(KafkaCode.MESSAGE_TOO_LARGE) is Verdict.SPLIT
    queue.take(OUT_OF_ORDER)
    queue.take(OUT_OF_ORDER)
    taken, next_sequence = [], 1
    while queue.can_send:
        batch = send(queue)
        assert batch.base_sequence == next_sequence
        next_sequence += batch.count
        taken += values_of(batch)
        queue.take(KafkaCode.NONE)
    assert taken == [value for run in rows for value in run]
    assert queue.rows_taken == 25


def test_one_row_that_is_too_large_is_told() -> None:
    queue = queue_of(("a",))
    send(queue)
    assert queue.take(KafkaCode.RECORD_LIST_TOO_LARGE) is Verdict.ROW_TOO_LARGE


class SequencedLog:
    """As a broker takes the batches of one producer."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self._recent: deque[int] = deque(maxlen=IN_FLIGHT_MAX)

    def has(self, batch: Batch) -> bool:
        return batch.base_sequence in self._recent

    def append(self, batch: Batch) -> KafkaCode:
        if self.has(batch):
            return KafkaCode.NONE
        # One that knows nothing of a producer takes any number.
        if self._recent and batch.base_sequence != len(self.values):
            return OUT_OF_ORDER
        self._recent.append(batch.base_sequence)
        self.values += values_of(batch)
        return KafkaCode.NONE


FATES = ["taken", "taken", "taken", "refused", "answer lost", "request lost", "too large"]


@settings(deadline=None)
@given(st.lists(st.sampled_from(FATES), max_size=40), st.integers(1, 6))
def test_every_row_is_taken_once_and_in_order(fates: list[str], run_length: int) -> None:
    rows = [str(number) for number in range(40)]
    runs = [tuple(rows[n : n + run_length]) for n in range(0, 40, run_length)]
    queue = queue_of(*runs, bytes_max=30)
    log = SequencedLog()
    coming = deque(fates)
    while queue.held_bytes:
        answers: list[KafkaCode] | None = []
        for batch in send_all(queue):
            fate = coming.popleft() if coming else "taken"
            if fate == "too large" and batch.count > 1 and not log.has(batch):
                answers.append(KafkaCode.MESSAGE_TOO_LARGE)
            elif fate == "refused":
                answers.append(KafkaCode.NOT_ENOUGH_REPLICAS)
            elif fate == "request lost":
                answers = None
                break
            else:
                answers.append(log.append(batch))
                if fate == "answer lost":
                    answers = None
                    break
        if answers is None:
            queue.lose_answers()
            continue
        for code in answers:
            verdict = queue.take(code)
            assert verdict is Verdict.IGNORED or code is not OUT_OF_ORDER
    assert log.values == rows
    assert queue.rows_taken == 40
