"""Sequence numbers, retries, epochs, and the snapshot file."""

import pytest

from millstream.errors import KafkaCode, KafkaError
from millstream.records.batch import BatchView
from millstream.records.builder import build_batch
from millstream.records.control import ControlType, EndTransactionMarker, build_end_marker
from millstream.records.records import Record
from millstream.storage.producer_budget import ProducerBudget
from millstream.storage.producers import PRODUCERS_MAX, SEQUENCE_MAX, ProducerStates
from tests.storage.logs import batch


def view(
    sequence: int, count: int = 1, *, epoch: int = 0, offset: int = 0, producer_id: int = 5
) -> BatchView:
    data = batch(count, producer_id=producer_id, producer_epoch=epoch, sequence=sequence)
    one = BatchView(memoryview(data))
    one.stamped(offset, 0)
    return one


def code_of(states: ProducerStates, one: BatchView) -> KafkaCode:
    with pytest.raises(KafkaError) as refused:
        states.check(one)
    return refused.value.code


def test_a_new_producer_may_start_with_any_sequence() -> None:
    assert ProducerStates().check(view(17)) is None


def test_the_next_sequence_is_accepted_and_a_gap_refused() -> None:
    states = ProducerStates()
    states.update(view(0, 3))
    assert states.check(view(3)) is None
    assert code_of(states, view(4)) is KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(states, view(2)) is KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero_inside_and_between_batches() -> None:
    states = ProducerStates()
    states.update(view(SEQUENCE_MAX - 1, 2))
    assert states.check(view(0)) is None
    assert code_of(states, view(1)) is KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    states = ProducerStates()
    states.update(view(SEQUENCE_MAX - 1, 4, offset=10))
    assert states.check(view(2)) is None
    again = states.check(view(SEQUENCE_MAX - 1, 4))
    assert again is not None
    assert (again.base_offset, again.last_offset) == (10, 13)
    decoded = ProducerStates.decode(states.encode(), next_offset=14)
    assert decoded.check(view(SEQUENCE_MAX - 1, 4)) == again


def test_the_last_five_batches_are_known_and_the_sixth_is_not() -> None:
    states = ProducerStates()
    for number in range(6):
        states.update(view(number, offset=number))
    for number in range(1, 6):
        known = states.check(view(number))
        assert known is not None
        assert known.base_offset == number
    assert code_of(states, view(0)) is KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one() -> None:
    states = ProducerStates()
    states.update(view(0, 3))
    assert code_of(states, view(3, epoch=1)) is KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(view(0, epoch=1)) is None
    states.update(view(0, epoch=1))
    assert code_of(states, view(3, epoch=0)) is KafkaCode.INVALID_PRODUCER_EPOCH


def test_a_snapshot_round_trips_byte_for_byte() -> None:
    states = ProducerStates()
    for number in range(4):
        states.update(view(number, offset=number, producer_id=number % 2))
    encoded = states.encode()
    decoded = ProducerStates.decode(encoded, next_offset=4)
    assert decoded.encode() == encoded
    assert decoded.next_offset == 4
    assert len(decoded) == 2


def test_the_snapshot_of_kafkas_layout_is_written() -> None:
    states = ProducerStates()
    states.update(view(7, 3, offset=100, epoch=2))
    encoded = states.encode()
    assert encoded[:2] == b"\x00\x01"
    assert encoded[6:10] == b"\x00\x00\x00\x01"
    fields = encoded[10:]
    assert len(fields) == 46
    assert fields[:8] == (5).to_bytes(8, "big")
    assert fields[8:10] == (2).to_bytes(2, "big")
    assert fields[10:14] == (9).to_bytes(4, "big")
    assert fields[14:22] == (102).to_bytes(8, "big")
    assert fields[22:26] == (2).to_bytes(4, "big")
    assert fields[34:] == b"\xff" * 12


@pytest.mark.parametrize("position", [0, 3, 8, 12, 30])
def test_a_damaged_snapshot_is_refused(position: int) -> None:
    states = ProducerStates()
    states.update(view(0))
    encoded = bytearray(states.encode())
    encoded[position] ^= 0x10
    with pytest.raises(ValueError):
        ProducerStates.decode(bytes(encoded), next_offset=1)
    with pytest.raises(ValueError):
        ProducerStates.decode(states.encode()[:-1], next_offset=1)


def test_silent_producers_expire_unless_a_transaction_is_open() -> None:
    states = ProducerStates()
    states.update(view(0, producer_id=1))
    open_transaction = build_batch(
        [Record(0, 0, None, b"v")],
        base_offset=1,
        producer_id=2,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    states.update(BatchView(memoryview(open_transaction)))
    states.expire(now_ms=10**15, expiration_ms=1000)
    assert [producer_id for producer_id, _ in states] == [2]


@pytest.mark.parametrize("ending", list(ControlType))
def test_a_marker_ends_a_transaction_and_reports_the_aborted_one(ending: ControlType) -> None:
    states = ProducerStates()
    data = build_batch(
        [Record(10, 0, None, b"v")],
        base_offset=10,
        producer_id=2,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    states.update(BatchView(memoryview(data)))
    marker = build_end_marker(
        EndTransactionMarker(ending, coordinator_epoch=3),
        base_offset=11,
        producer_id=2,
        producer_epoch=0,
        timestamp_ms=1,
    )
    aborted = states.update(BatchView(memoryview(marker)))
    producer = states.get(2)
    assert producer is not None
    assert (producer.transaction_first_offset, producer.coordinator_epoch) == (-1, 3)
    if ending is ControlType.COMMIT:
        assert aborted is None
    else:
        assert aborted is not None
        assert (aborted.first_offset, aborted.last_offset, aborted.last_stable_offset) == (
            10,
            11,
            12,
        )


def test_only_transactional_batches_follow_in_an_open_transaction() -> None:
    """Another one, of a higher epoch, would make the transaction's marker an outdated one."""
    states = ProducerStates()
    begun = build_batch(
        [Record(10, 0, None, b"v")],
        base_offset=10,
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    states.update(BatchView(memoryview(begun)))
    assert code_of(states, view(0, epoch=1)) is KafkaCode.INVALID_TXN_STATE
    assert code_of(states, view(1, epoch=0)) is KafkaCode.INVALID_TXN_STATE
    marker = build_end_marker(
        EndTransactionMarker(ControlType.COMMIT, coordinator_epoch=3),
        base_offset=11,
        producer_id=5,
        producer_epoch=0,
        timestamp_ms=1,
    )
    states.update(BatchView(memoryview(marker)))
    assert states.check(view(0, epoch=1)) is None


def test_a_marker_that_is_there_already_is_counted_and_not_written_again() -> None:
    """It may be that of a transaction whose first write is still being verified."""
    states = ProducerStates()
    marker = EndTransactionMarker(ControlType.ABORT, coordinator_epoch=3)
    data = build_end_marker(marker, base_offset=0, producer_id=2, producer_epoch=0, timestamp_ms=1)
    assert states.check_marker(marker, 2, 0)
    states.update(BatchView(memoryview(data)))
    producer = states.get(2)
    assert producer is not None
    assert producer.markers == 1
    assert not states.check_marker(marker, 2, 0)
    assert producer.markers == 2


def test_invented_producers_make_room_for_each_other() -> None:
    states = ProducerStates()
    states.update(view(0, producer_id=1))
    for number in range(PRODUCERS_MAX + 10):
        states.update(view(0, offset=1 + number, producer_id=100 + number))
        if number % 1000 == 0:
            states.update(view(1 + number // 1000, offset=1 + number, producer_id=1))
    assert len(states) <= PRODUCERS_MAX
    # The one that goes on writing is known, the oldest of the others is not.
    assert states.get(1) is not None
    assert states.get(100) is None
    assert states.get(100 + PRODUCERS_MAX) is not None


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    states = ProducerStates()
    data = build_batch(
        [Record(0, 1, None, b"v")],
        base_offset=0,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    states.update(BatchView(memoryview(data)))
    for number in range(PRODUCERS_MAX + 10):
        states.update(view(0, offset=1 + number, producer_id=100 + number))
    assert states.has_open_transaction(1, 0)


def test_what_a_follower_remembers_takes_room_until_it_is_forgotten_and_gives_no_more_back() -> (
    None
):
    budget = ProducerBudget(10)
    follower, leader = ProducerStates(budget), ProducerStates(budget)
    for producer_id in range(4):
        follower.update(view(0, producer_id=producer_id))
    taken = 0
    with pytest.raises(KafkaError) as refused:
        while True:
            one = view(0, producer_id=100 + taken)
            leader.check(one)
            leader.update(one)
            taken += 1
    assert refused.value.code is KafkaCode.THROTTLING_QUOTA_EXCEEDED
    assert taken == 6
    follower.expire(now_ms=2**62, expiration_ms=0)
    for number in range(taken, 10):
        one = view(0, producer_id=100 + number)
        leader.check(one)
        leader.update(one)
    assert code_of(leader, view(0, producer_id=99)) is KafkaCode.THROTTLING_QUOTA_EXCEEDED
