"""A thread that pauses leaves the GIL to the loop."""

import pytest

from millstream.broker.requests import pacing
from millstream.broker.requests.pacing import (
    PAUSE_SECONDS,
    PAUSE_SECONDS_MAX,
    WORK_SECONDS,
    Pace,
    pause_after,
)
from millstream.wire.apis.list_groups import ListGroupsGroup, ListGroupsRequest, ListGroupsResponse
from millstream.wire.codec import request_reader, request_writer, response_writer
from millstream.wire.cursor import LONG_ARRAY, Cursor
from millstream.wire.output import PausingOutput


class Clock:
    """Stands still, except while somebody sleeps or works."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.slept = 0.0
        monkeypatch.setattr(pacing.time, "perf_counter", lambda: self.now)  # type: ignore[attr-defined]
        monkeypatch.setattr(pacing.time, "sleep", self._sleep)  # type: ignore[attr-defined]

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_every_item_comes_and_pauses_are_longer_than_the_work(clock: Clock) -> None:
    seen = []
    for item in Pace(lambda: True).each(range(1000)):
        seen.append(item)
        clock.now += WORK_SECONDS / 10
    assert seen == list(range(1000))
    worked = clock.now - clock.slept
    assert clock.slept > worked
    assert clock.slept <= (worked / WORK_SECONDS + 1) * PAUSE_SECONDS * 1.2


def test_work_that_took_longer_by_the_clock_is_followed_by_a_longer_pause(clock: Clock) -> None:
    pauses = []
    for _ in Pace(lambda: True).each(range(4)):
        pauses.append(clock.slept)
        clock.now += 0.005
    assert pauses == pytest.approx([0, 0.01, 0.02, 0.03])
    assert pause_after(0.0) == PAUSE_SECONDS
    assert pause_after(10.0) == PAUSE_SECONDS_MAX


def test_a_pause_within_a_list_is_no_work_of_the_list_around_it(clock: Clock) -> None:
    pace = Pace(lambda: True)
    for _ in pace.each(range(3)):
        for _ in pace.each(range(2)):
            clock.now += 2 * WORK_SECONDS
    assert clock.slept == pytest.approx(6 * 4 * WORK_SECONDS)


def test_short_work_is_not_interrupted(clock: Clock) -> None:
    for _ in Pace(lambda: True).each(range(10)):
        clock.now += WORK_SECONDS / 20
    assert clock.slept == 0


def test_nobody_pauses_for_no_one(clock: Clock) -> None:
    for _ in Pace(lambda: False).each(range(1000)):
        clock.now += WORK_SECONDS
    assert clock.slept == 0


def groups(count: int) -> ListGroupsResponse:
    rows = [
        ListGroupsGroup(group_id=f"g{i}", protocol_type="", group_state="", group_type="")
        for i in range(count)
    ]
    return ListGroupsResponse(error_code=0, groups=rows)


@pytest.mark.parametrize(("count", "seen"), [(LONG_ARRAY - 1, 0), (LONG_ARRAY, LONG_ARRAY)])
def test_a_long_array_is_written_with_pauses_and_to_the_same_bytes(count: int, seen: int) -> None:
    passed: list[object] = []

    def each(items: list[object]) -> list[object]:
        passed.extend(items)
        return items

    out, plain = PausingOutput(b"start", each), bytearray(b"start")  # type: ignore[arg-type]
    write = response_writer(ListGroupsRequest, 4)
    write(out, groups(count))
    write(plain, groups(count))
    assert out == plain
    assert len(passed) == seen


@pytest.mark.parametrize(("count", "seen"), [(LONG_ARRAY - 1, 0), (LONG_ARRAY, LONG_ARRAY)])
def test_a_long_array_is_read_with_pauses_and_to_the_same_message(count: int, seen: int) -> None:
    passed: list[object] = []

    def each(items: range) -> range:
        passed.extend(items)
        return items

    out = bytearray()
    sent = ListGroupsRequest(states_filter=[f"s{i}" for i in range(count)])
    request_writer(ListGroupsRequest, 4)(out, sent)
    read = request_reader(ListGroupsRequest, 4)
    assert read(Cursor(memoryview(out), each=each)) == sent  # type: ignore[arg-type]
    assert len(passed) == seen
