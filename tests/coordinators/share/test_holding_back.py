"""Records that are not due or have expired, case by case, and at random."""

import random

import pytest

from millstream.coordinators.share import delays, holding_back
from millstream.coordinators.share.acknowledging import ACCEPT, RELEASE, Acknowledgement
from millstream.coordinators.share.acquiring import LogBatch, Wanted, acquire
from millstream.coordinators.share.holding_back import Clocks, HeldBack, hold_back
from millstream.coordinators.share.partition import Acquired, ShareLimits, SharePartition
from millstream.coordinators.share.state_batches import ARCHIVED, StateBatch, combine
from millstream.records.delivery_times import NEVER_MS, RecordTimes

LIMITS = ShareLimits(deliveries_max=5, in_flight_max=200, lock_ms=30_000)
# The wall clock is so far ahead of the uptime.
AHEAD_MS = 1_000_000


def new_share(limits: ShareLimits = LIMITS) -> SharePartition:
    return SharePartition(limits, start_offset=0)


def delayed(first: int, last: int, until_ms: int) -> list[RecordTimes]:
    return [RecordTimes(n, AHEAD_MS + until_ms, NEVER_MS) for n in range(first, last + 1)]


def expiring(first: int, last: int, after_ms: int) -> list[RecordTimes]:
    return [RecordTimes(n, 0, AHEAD_MS + after_ms) for n in range(first, last + 1)]


def look(
    share: SharePartition, times: list[RecordTimes], *, last: int, now_ms: int = 0
) -> HeldBack:
    """As a fetch that finds one batch up to `last`."""
    offset = share.next_fetch_offset()
    found = [one for one in times if one.offset >= offset]
    clocks = Clocks(AHEAD_MS + now_ms, now_ms)
    return hold_back(share, [LogBatch(offset, last)], found, clocks=clocks)


def take(
    share: SharePartition, times: list[RecordTimes], *, last: int, now_ms: int = 0, most: int = 500
) -> list[Acquired]:
    share.end_delays(now_ms)
    if not share.may_acquire():
        return []
    offset = share.next_fetch_offset()
    if offset > last:
        return []
    held = look(share, times, last=last, now_ms=now_ms)
    wanted = Wanted(most, 500)
    return acquire(
        share, "m", fetch_offset=offset, fetched=held.fetched, wanted=wanted, now_ms=now_ms
    )


def say(share: SharePartition, kind: int, *ranges: Acquired) -> list[StateBatch]:
    asked = [Acknowledgement(one.first, one.last, [kind]) for one in ranges]
    change = share.acknowledge("m", asked, now_ms=0)
    share.stored(change)
    return change.state_batches()


def test_records_that_are_not_due_wait_and_others_pass_them() -> None:
    share, times = new_share(), delayed(2, 3, 5_000)
    found = take(share, times, last=5)
    assert found == [Acquired(0, 1, 1), Acquired(4, 5, 1)]
    assert (share.counts().delayed, share.next_deadline_ms()) == (2, 5_000)
    assert take(share, times, last=5, now_ms=4_999) == []
    say(share, ACCEPT, *found)
    assert share.start_offset == 2
    assert take(share, times, last=5, now_ms=5_000) == [Acquired(2, 3, 1)]


def test_expired_records_are_archived() -> None:
    share, times = new_share(), expiring(0, 2, -1)
    held = look(share, times, last=5)
    assert held.archived == [StateBatch(0, 2, ARCHIVED, 0)]
    assert (share.start_offset, held.has_changed) == (3, True)
    assert take(share, [], last=5) == [Acquired(3, 5, 1)]


def test_a_record_that_was_given_back_may_expire() -> None:
    share, times = new_share(), expiring(1, 1, 100)
    say(share, RELEASE, *take(share, times, last=2))
    assert take(share, times, last=2, now_ms=101) == [Acquired(0, 0, 2), Acquired(2, 2, 2)]


def test_a_record_is_delivered_up_to_the_last_millisecond() -> None:
    share, times = new_share(), [RecordTimes(0, AHEAD_MS, AHEAD_MS)]
    assert take(share, times, last=0) == [Acquired(0, 0, 1)]


def test_neighbours_that_are_due_at_nearly_the_same_time_wait_together() -> None:
    share = new_share()
    times = [*delayed(0, 0, 1_000), *delayed(1, 1, 1_030), *delayed(2, 2, 9_000)]
    assert take(share, times, last=2) == []
    assert [(one.first, one.last) for one in share.in_flight.batches] == [(0, 1), (2, 2)]
    assert take(share, times, last=2, now_ms=1_029) == []
    assert take(share, times, last=2, now_ms=1_030) == [Acquired(0, 1, 1)]


def test_delayed_records_do_not_use_up_the_room_of_others() -> None:
    share, times = new_share(), delayed(0, 499, 60_000)
    assert take(share, times, last=999) == []
    assert share.delays.count == 200
    found = take(share, times, last=999)
    assert share.delays.count == 400, "as many as there is room for at a time"
    total = 0
    while found := take(share, times, last=999) or (total == 0 and take(share, times, last=999)):
        total += sum(one.last - one.first + 1 for one in found)
        say(share, ACCEPT, *found)
    assert (total, share.delays.count, share.start_offset) == (500, 500, 0)


def test_too_many_delayed_records_stop_the_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "DELAYED_MAX", 10)
    share, times = new_share(), delayed(0, 19, 1_000)
    assert take(share, times, last=19) == []
    assert share.delays.count >= 10
    assert not share.may_acquire()
    assert take(share, times, last=30) == []
    assert take(share, times, last=30, now_ms=1_000)[0] == Acquired(0, 19, 1)


def test_what_is_finished_behind_a_delayed_record_takes_little_memory() -> None:
    share, times = new_share(), delayed(0, 0, 60_000)
    take(share, times, last=0)
    for number in range(1, 2_000):
        say(share, ACCEPT, *take(share, [], last=number, most=1))
    assert len(share.in_flight.batches) < 500
    assert (share.start_offset, share.finished_count) == (0, 1_999)
    assert take(share, times, last=1_999, now_ms=60_000) == [Acquired(0, 0, 1)]
    say(share, ACCEPT, Acquired(0, 0, 1))
    assert (share.start_offset, share.in_flight.batches) == (2_000, [])


def test_the_next_leader_looks_at_delayed_records_again() -> None:
    share, times = new_share(), delayed(1, 1, 60_000)
    found = take(share, times, last=3)
    stored = combine([], say(share, ACCEPT, *found), start_offset=share.start_offset)
    again = SharePartition(LIMITS, start_offset=share.start_offset, stored=stored)
    assert take(again, times, last=3) == []
    assert take(again, times, last=3, now_ms=60_000) == [Acquired(1, 1, 1)]


def test_deleted_records_are_not_counted_as_delayed() -> None:
    share, times = new_share(), delayed(0, 9, 60_000)
    take(share, times, last=9)
    share.log_starts_at(4)
    assert (share.delays.count, share.start_offset) == (6, 4)
    share.end_delays(60_000)
    assert (share.delays.count, share.next_fetch_offset()) == (0, 4)


@pytest.mark.parametrize("seed", range(10))
def test_each_record_is_delivered_in_its_time_or_not_at_all(seed: int) -> None:
    chance = random.Random(seed)
    size = 300
    times = [
        RecordTimes(n, AHEAD_MS + chance.randrange(3_000), AHEAD_MS + chance.randrange(6_000))
        for n in range(size)
        if chance.random() < 0.5
    ]
    of = {one.offset: one for one in times}
    share = new_share(ShareLimits(5, chance.choice([20, 100, 1000]), 1_000))
    delivered: dict[int, int] = {}
    for now_ms in range(0, 9_000, 75):
        for _ in range(15):
            last = min(size - 1, share.next_offset + chance.randrange(60))
            found = take(share, times, last=last, now_ms=now_ms, most=chance.choice([1, 7, 500]))
            for one in found:
                for number in range(one.first, one.last + 1):
                    assert number not in delivered
                    delivered[number] = now_ms
            say(share, ACCEPT, *found)
            wanted = sum(len(batch.each or ()) or batch.size for batch in share.in_flight.batches)
            assert share.delays.count <= wanted
    for number in range(size):
        one = of.get(number, RecordTimes(number, 0, NEVER_MS))
        if number in delivered:
            assert one.not_before_ms <= AHEAD_MS + delivered[number] <= one.not_after_ms
        else:
            assert one.not_after_ms < max(one.not_before_ms + 200, AHEAD_MS + 1_500)
    assert (share.start_offset, share.delays.count, share.finished_count) == (size, 0, 0)


def test_records_behind_many_with_times_are_left_for_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holding_back, "_LOOKED_AT_MAX", 500)
    share = new_share(ShareLimits(deliveries_max=5, in_flight_max=10_000, lock_ms=30_000))
    times = [RecordTimes(n, AHEAD_MS + 100 * (n + 1), NEVER_MS) for n in range(1_200)]
    ends = []
    for _ in range(3):
        held = look(share, times, last=1_299)
        ends.append((share.next_offset, held.fetched[-1].last, held.has_changed))
    assert ends == [(500, 499, True), (1_000, 999, True), (1_200, 1_299, True)]
    assert share.delays.count == 1_200
