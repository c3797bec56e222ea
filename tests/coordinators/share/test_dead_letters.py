"""Where dead letters go, and what is in them; and which records get one."""

from dataclasses import replace

import pytest

from millstream.coordinators.share.acknowledging import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    Acknowledgement,
)
from millstream.coordinators.share.acquiring import LogBatch, Wanted, acquire
from millstream.coordinators.share.dead_letters import (
    REJECTED,
    TOO_MANY_DELIVERIES,
    Destination,
    Source,
    letters,
    partition_of,
    problem_with,
    reason,
    with_copy,
)
from millstream.coordinators.share.dead_records import DeadRange
from millstream.coordinators.share.partition import ShareLimits, SharePartition
from millstream.coordinators.share.state_batches import ARCHIVED, ARCHIVING, AVAILABLE, StateBatch
from millstream.records.records import Record

GOOD = Destination(
    "dlq.orders",
    partitions=3,
    takes_dead_letters=True,
    is_compacted=False,
    prefix="dlq.",
    may_create=False,
)
SOURCE = Source("workers", "orders", 4)
LIMITS = ShareLimits(deliveries_max=2, in_flight_max=200, lock_ms=1_000, has_dead_letters=True)


def test_a_topic_that_permits_it_takes_dead_letters() -> None:
    assert problem_with(GOOD) is None
    assert problem_with(replace(GOOD, partitions=None, may_create=True)) is None
    assert problem_with(replace(GOOD, name="any", prefix="")) is None
    assert partition_of(SOURCE, 3) == 1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"takes_dead_letters": False}, "errors.deadletterqueue.group.enable"),
        ({"partitions": None}, "does not exist"),
        ({"name": "orders"}, "does not begin with 'dlq.'"),
        ({"name": "__consumer_offsets", "prefix": ""}, "internal"),
        ({"is_compacted": True}, "compacted"),
        # It could never be created.
        ({"name": "dlq.my orders", "partitions": None, "may_create": True}, "characters"),
    ],
)
def test_what_is_wrong_with_a_topic_is_said(changed: dict[str, object], words: str) -> None:
    problem = problem_with(replace(GOOD, **changed))  # type: ignore[arg-type]
    assert words in str(problem)


def test_a_letter_says_where_its_record_is_and_why_it_died() -> None:
    first, second = letters(SOURCE, DeadRange(7, 8, 3, is_rejected=False), now_ms=5)
    assert (first.timestamp_ms, first.key, first.value) == (5, None, None)
    assert dict(second.headers) == {
        "__dlq.errors.topic": b"orders",
        "__dlq.errors.partition": b"4",
        "__dlq.errors.offset": b"8",
        "__dlq.errors.group": b"workers",
        "__dlq.errors.delivery.count": b"3",
        "__dlq.errors.message": TOO_MANY_DELIVERIES.encode(),
    }
    assert reason(DeadRange(7, 8, 3, is_rejected=True)) == REJECTED


def test_a_copy_has_the_headers_of_its_record_but_those_that_would_act_on_the_letter() -> None:
    [letter] = letters(SOURCE, DeadRange(7, 7, 1, is_rejected=True), now_ms=5)
    headers: list[tuple[str, bytes | None]] = [
        ("trace", b"1"),
        ("__dlq.errors.topic", b"older"),
        ("ttl", b"3"),
    ]
    found = with_copy(letter, Record(7, 1, b"k", b"v", headers), left_out=["ttl"])
    assert (found.key, found.value, found.timestamp_ms) == (b"k", b"v", 5)
    assert found.headers == [*letter.headers, ("trace", b"1")]


# -- which records ------------------------------------------------------------------------


def share_with(size: int, limits: ShareLimits = LIMITS) -> SharePartition:
    share = SharePartition(limits, start_offset=0)
    take(share, size)
    return share


def take(share: SharePartition, size: int, now_ms: int = 0) -> None:
    offset = share.next_fetch_offset()
    fetched = [LogBatch(0, size - 1)]
    acquire(share, "m", fetch_offset=offset, fetched=fetched, wanted=Wanted(99, 99), now_ms=now_ms)


def say(share: SharePartition, first: int, *kinds: int) -> list[StateBatch]:
    asked = Acknowledgement(first, first + len(kinds) - 1, kinds)
    change = share.acknowledge("m", [asked], now_ms=0)
    share.stored(change)
    return change.state_batches()


def test_a_rejected_record_is_archived_when_its_letter_is_written() -> None:
    share = share_with(4)
    assert say(share, 0, REJECT, GAP, ACCEPT, RELEASE)[0] == StateBatch(0, 0, ARCHIVING, 1)
    assert share.dead.ranges == [DeadRange(0, 0, 1, is_rejected=True)]
    assert (share.start_offset, share.counts().archiving) == (0, 1), "it is still in flight"
    take(share, 4)
    assert share.counts().acquired == 1, "nobody gets it again"
    assert share.dead_letters_written(share.dead.next(10)) == [StateBatch(0, 0, ARCHIVED, 1)]
    assert (share.start_offset, share.dead.ranges, share.finished_count) == (3, [], 0)


def test_a_record_that_was_delivered_too_often_gets_a_letter() -> None:
    share = share_with(2)
    say(share, 0, RELEASE, RELEASE)
    take(share, 2)
    say(share, 0, RELEASE)
    assert share.expire(2_000) == [StateBatch(1, 1, ARCHIVING, 2)]
    expected = [DeadRange(n, n, 2, is_rejected=False) for n in (0, 1)]
    assert share.dead.next(10) == expected
    share.dead_letters_written(expected)
    assert share.start_offset == 2


def test_without_a_topic_for_letters_records_are_archived_at_once() -> None:
    share = share_with(1, replace(LIMITS, has_dead_letters=False))
    assert say(share, 0, REJECT) == [StateBatch(0, 0, ARCHIVED, 1)]
    assert (share.start_offset, share.dead.ranges) == (1, [])


def test_what_could_not_be_stored_gets_no_letter() -> None:
    share = share_with(1)
    change = share.acknowledge("m", [Acknowledgement(0, 0, [REJECT])], now_ms=0)
    share.not_stored(change, now_ms=0)
    assert (share.dead.ranges, share.counts().acquired) == ([], 1)


def test_the_next_leader_writes_the_letters_that_are_missing() -> None:
    stored = [StateBatch(0, 0, ARCHIVING, 1), StateBatch(1, 2, ARCHIVING, 2)]
    share = SharePartition(LIMITS, start_offset=0, stored=stored)
    # Why is not stored: who was delivered as often as possible was probably not rejected.
    assert share.dead.ranges == [DeadRange(0, 0, 1, True), DeadRange(1, 2, 2, False)]
    share.dead_letters_written(share.dead.next(10))
    assert share.start_offset == 3


def test_letters_are_written_some_at_a_time() -> None:
    stored = [StateBatch(0, 9, ARCHIVING, 1), StateBatch(10, 12, AVAILABLE, 1)]
    share = SharePartition(LIMITS, start_offset=0, stored=stored)
    assert share.dead.next(4) == [DeadRange(0, 3, 1, True)]
    assert share.dead.next(4) == [DeadRange(0, 3, 1, True)]
    share.dead_letters_written(share.dead.next(4))
    assert (share.start_offset, share.dead.ranges) == (4, [DeadRange(4, 9, 1, True)])
    share.dead_letters_written(share.dead.next(100))
    assert share.start_offset == 10


def test_records_that_retention_deletes_still_get_their_letters() -> None:
    share = share_with(4)
    say(share, 0, REJECT, REJECT)
    share.log_starts_at(3)
    assert share.dead.next(10) == [DeadRange(0, 0, 1, True), DeadRange(1, 1, 1, True)]
    share.dead_letters_written(share.dead.next(10))
    assert (share.start_offset, share.finished_count, share.dead.ranges) == (3, 0, [])
