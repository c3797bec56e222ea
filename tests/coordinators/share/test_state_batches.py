from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from millstream.coordinators.share.state_batches import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    StateBatch,
    combine,
    joined,
)

BATCHES = st.builds(
    lambda first, size, state, count: StateBatch(first, first + size, state, count),
    st.integers(0, 30),
    st.integers(0, 12),
    st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]),
    st.integers(1, 3),
)


def by_record(batches: list[StateBatch], start_offset: int) -> dict[int, tuple[int, int]]:
    """The highest count and state of each record, one by one."""
    records: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(batch.first, batch.last + 1):
            if offset >= start_offset:
                news = (batch.delivery_count, batch.state)
                records[offset] = max(records.get(offset, news), news)
    return records


@given(st.lists(BATCHES, max_size=12), st.integers(-1, 40))
def test_combining_is_the_same_as_record_by_record(
    news: list[StateBatch], start_offset: int
) -> None:
    known: tuple[StateBatch, ...] = ()
    for batch in news:
        known = combine(known, [batch], start_offset=-1)
    found = combine(known, [], start_offset=start_offset)
    assert by_record(list(found), start_offset) == by_record(news, start_offset)
    assert list(found) == joined(found), "neighbours that are equal are one"
    for before, after in pairwise(found):
        assert before.last < after.first
    assert combine((), news, start_offset=start_offset) == found


def test_an_older_report_that_arrives_late_changes_nothing() -> None:
    known = combine((), [StateBatch(0, 9, ACKNOWLEDGED, 2)], start_offset=-1)
    assert combine(known, [StateBatch(3, 4, AVAILABLE, 2)], start_offset=-1) == known


def test_what_is_below_the_start_is_cut_off() -> None:
    known = combine((), [StateBatch(0, 9, ARCHIVED, 1)], start_offset=4)
    assert known == (StateBatch(4, 9, ARCHIVED, 1),)
