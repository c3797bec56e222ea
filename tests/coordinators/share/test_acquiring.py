"""Which of the fetched records a consumer gets."""

from collections.abc import Sequence

import pytest

from millstream.coordinators.share.acknowledging import RELEASE, Acknowledgement
from millstream.coordinators.share.acquiring import LogBatch, Wanted, acquire, without
from millstream.coordinators.share.partition import Acquired, ShareLimits, SharePartition

MEMBER = "member"
LIMITS = ShareLimits(deliveries_max=5, in_flight_max=200, lock_ms=30_000)


def log_of(*sizes: int) -> list[LogBatch]:
    first, batches = 0, []
    for size in sizes:
        batches.append(LogBatch(first, first + size - 1))
        first += size
    return batches


def take(share: SharePartition, log: Sequence[LogBatch], wanted: Wanted) -> list[Acquired]:
    offset = share.next_fetch_offset()
    fetched = [batch for batch in log if batch.last >= offset]
    return acquire(share, MEMBER, fetch_offset=offset, fetched=fetched, wanted=wanted, now_ms=0)


def release(share: SharePartition, first: int, last: int) -> None:
    asked = [Acknowledgement(first, last, [RELEASE])]
    share.stored(share.acknowledge(MEMBER, asked, now_ms=0))


def new_share(limits: ShareLimits = LIMITS) -> SharePartition:
    return SharePartition(limits, start_offset=0)


def test_the_limit_is_reached_at_the_end_of_a_batch_of_the_log() -> None:
    assert take(new_share(), log_of(10, 10, 10), Wanted(15, 500)) == [Acquired(0, 19, 1)]


def test_an_exact_limit_ends_inside_a_batch() -> None:
    share, log, wanted = new_share(), log_of(10, 10), Wanted(4, 500, is_limit_exact=True)
    assert take(share, log, wanted) == [Acquired(0, 3, 1)]
    assert share.counts().available == 6
    assert take(share, log, wanted) == [Acquired(4, 7, 1)]
    # The rest of a batch in flight, then new records, as many as are missing.
    assert take(share, log, wanted) == [Acquired(8, 9, 1), Acquired(10, 11, 1)]


def test_an_exact_limit_divides_a_batch_that_was_released() -> None:
    share, log = new_share(), log_of(10)
    take(share, log, Wanted(500, 500))
    release(share, 0, 9)
    wanted = Wanted(3, 500, is_limit_exact=True)
    assert take(share, log, wanted) == [Acquired(0, 2, 2)]


def test_a_batch_that_was_released_is_taken_whole_whatever_the_limit() -> None:
    share, log = new_share(), log_of(10, 10)
    take(share, log, Wanted(500, 500))
    release(share, 0, 19)
    assert take(share, log, Wanted(1, 500)) == [Acquired(0, 19, 2)]


def test_many_records_are_divided_where_batches_of_the_log_end() -> None:
    found = take(new_share(), log_of(3, 3, 3, 3, 3), Wanted(500, 5))
    assert found == [Acquired(0, 5, 1), Acquired(6, 11, 1), Acquired(12, 14, 1)]


def test_no_more_are_in_flight_than_allowed_but_for_the_end_of_a_batch() -> None:
    share, log = new_share(ShareLimits(5, 15, 30_000)), log_of(10, 10, 10)
    assert take(share, log, Wanted(500, 500)) == [Acquired(0, 19, 1)]
    assert not share.may_acquire()
    assert take(share, log, Wanted(500, 500)) == []
    release(share, 12, 13)
    assert share.may_acquire()
    assert take(share, log, Wanted(500, 500)) == [Acquired(12, 13, 2)]


def test_a_range_read_only_in_part_divides_a_batch_in_flight() -> None:
    share, log = new_share(), log_of(5, 5)
    take(share, log, Wanted(500, 500))
    release(share, 0, 9)
    assert take(share, log[:1], Wanted(500, 500)) == [Acquired(0, 4, 2)]
    assert take(share, log, Wanted(500, 500)) == [Acquired(5, 9, 2)]


def test_records_that_keep_failing_come_in_ever_smaller_batches() -> None:
    """With five deliveries: from the third on in halves, and the last time one by one."""
    share, log = new_share(), log_of(16)
    sizes = []
    for _ in range(5):
        found = take(share, log, Wanted(500, 500))
        sizes.append(sum(one.last - one.first + 1 for one in found))
        # The first record has been delivered most often.
        assert found[0].first == 0
        for one in found:
            release(share, one.first, one.last)
    assert sizes == [16, 16, 16, 8, 1]


def test_records_that_keep_failing_do_not_come_with_others() -> None:
    share, log = new_share(), log_of(2, 4, 2)
    for batch in log:
        offset = share.next_fetch_offset()
        wanted = Wanted(1, 500)
        acquire(share, MEMBER, fetch_offset=offset, fetched=[batch], wanted=wanted, now_ms=0)
    for _ in range(2):
        release(share, 2, 5)
        take(share, log, Wanted(500, 500))
    release(share, 0, 1)
    release(share, 2, 5)
    release(share, 6, 7)
    assert take(share, log, Wanted(500, 500)) == [Acquired(0, 1, 2)]
    assert take(share, log, Wanted(500, 500)) == [Acquired(2, 3, 4)]


@pytest.mark.parametrize(
    ("aborted", "left"),
    [
        ([], [Acquired(0, 9, 1), Acquired(15, 19, 2)]),
        ([LogBatch(0, 19)], []),
        ([LogBatch(3, 4), LogBatch(6, 16)], [(0, 2, 1), (5, 5, 1), (17, 19, 2)]),
        ([LogBatch(10, 14)], [Acquired(0, 9, 1), Acquired(15, 19, 2)]),
    ],
)
def test_aborted_batches_are_cut_out(aborted: list[LogBatch], left: list[Acquired]) -> None:
    assert without([Acquired(0, 9, 1), Acquired(15, 19, 2)], aborted) == left


def test_records_of_an_aborted_transaction_are_finished() -> None:
    share = new_share()
    take(share, log_of(10, 10), Wanted(500, 500))
    share.archive_acquired(0, 9)
    assert (share.start_offset, share.counts().acquired) == (10, 10)
    share.archive_acquired(12, 13)
    assert share.counts() == (0, 8, 2, 0, 0)
