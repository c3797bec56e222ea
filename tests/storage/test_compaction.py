"""The decisions of compaction, over plain values."""

from dataclasses import replace

import pytest

from millstream.records.batch import BatchView
from millstream.records.builder import build_batch
from millstream.records.control import ControlType, EndTransactionMarker, build_end_marker
from millstream.records.records import Record
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.compaction import (
    Dirtiness,
    Span,
    Transactions,
    dirtiness,
    group_segments,
    is_due,
)
from millstream.storage.values import LogConfig
from tests.storage.logs import make_log_config

CONFIG = make_log_config(is_compacted=True)
NOW_MS = 1_000_000
# Three closed segments of ten offsets, and an active one.
SPANS = [Span(base, base + 10, 100) for base in (0, 10, 20, 30)]


def measured(
    *,
    spans: list[Span] = SPANS,
    config: LogConfig = CONFIG,
    cleaned_offset: int | None = None,
    log_start_offset: int = 0,
    last_stable_offset: int = 40,
) -> Dirtiness:
    return dirtiness(
        spans,
        config,
        cleaned_offset=cleaned_offset,
        log_start_offset=log_start_offset,
        last_stable_offset=last_stable_offset,
        now_ms=NOW_MS,
    )


class TestDirtiness:
    def test_a_log_that_was_never_cleaned_is_all_dirty_but_for_its_active_segment(self) -> None:
        found = measured()
        assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 30)
        assert (found.clean_bytes, found.dirty_bytes, found.ratio) == (0, 300, 1.0)

    def test_what_the_last_round_reached_is_clean(self) -> None:
        found = measured(cleaned_offset=10)
        assert (found.clean_bytes, found.dirty_bytes) == (100, 200)
        assert found.ratio == pytest.approx(2 / 3)

    def test_a_segment_that_a_round_ended_in_is_still_dirty(self) -> None:
        found = measured(cleaned_offset=15)
        assert (found.first_dirty_offset, found.clean_bytes, found.dirty_bytes) == (15, 100, 200)

    @pytest.mark.parametrize("cleaned_offset", [3, 99])
    def test_a_checkpoint_outside_the_log_counts_for_nothing(self, cleaned_offset: int) -> None:
        assert measured(cleaned_offset=cleaned_offset, log_start_offset=5).first_dirty_offset == 5

    @pytest.mark.parametrize(("stable", "uncleanable"), [(0, 0), (9, 0), (10, 10), (25, 20)])
    def test_a_segment_with_undecided_records_is_left_alone(
        self, stable: int, uncleanable: int
    ) -> None:
        assert measured(last_stable_offset=stable).first_uncleanable_offset == uncleanable

    def test_a_segment_with_young_records_and_all_after_it_are_left_alone(self) -> None:
        config = replace(CONFIG, compaction_lag_min_ms=500)
        spans = [
            replace(span, max_timestamp_ms=newest)
            for span, newest in zip(SPANS, [NOW_MS - 500, NOW_MS - 499, 0, 0], strict=True)
        ]
        found = measured(spans=spans, config=config)
        assert (found.first_uncleanable_offset, found.dirty_bytes) == (10, 100)

    def test_old_records_are_overdue_whatever_the_ratio(self) -> None:
        config = replace(CONFIG, compaction_lag_max_ms=500)
        spans = [replace(span, first_timestamp_ms=NOW_MS - 500) for span in SPANS]
        assert not measured(spans=spans, config=config, cleaned_offset=20).is_overdue
        spans[2] = replace(spans[2], first_timestamp_ms=NOW_MS - 501)
        found = measured(spans=spans, config=config, cleaned_offset=20)
        assert found.is_overdue
        assert found.ratio < 0.5
        assert is_due(found, config)

    def test_a_log_is_due_when_more_than_the_ratio_is_dirty(self) -> None:
        assert is_due(Dirtiness(0, 30, 49, 51, False), CONFIG)
        assert not is_due(Dirtiness(0, 30, 50, 50, False), CONFIG)
        assert not is_due(Dirtiness(0, 0, 0, 0, True), replace(CONFIG, cleanable_ratio_min=0.0))

    def test_a_log_with_one_segment_is_clean(self) -> None:
        assert measured(spans=SPANS[:1]).dirty_bytes == 0


class TestGroups:
    def groups(self, spans: list[Span], **limits: int) -> list[list[int]]:
        roomy = {"segment_bytes": 1 << 30, "segment_index_bytes": 10 << 20}
        groups = group_segments(spans, **{**roomy, **limits})
        return [[span.base_offset for span in group] for group in groups]

    def test_neighbours_are_merged_up_to_the_size_of_a_segment(self) -> None:
        assert self.groups(SPANS, segment_bytes=200) == [[0, 10], [20, 30]]
        assert self.groups(SPANS, segment_bytes=399) == [[0, 10, 20], [30]]

    def test_a_segment_that_is_too_large_stays_alone(self) -> None:
        assert self.groups(SPANS, segment_bytes=50) == [[0], [10], [20], [30]]

    def test_an_index_must_hold_the_entries_of_all(self) -> None:
        spans = [replace(span, index_bytes=60) for span in SPANS]
        assert self.groups(spans, segment_index_bytes=120) == [[0, 10], [20, 30]]

    def test_offsets_must_fit_the_index(self) -> None:
        spans = [Span(0, 10, 1), Span(10, 2**31, 1), Span(2**31, 2**31 + 1, 1)]
        assert self.groups(spans) == [[0, 10], [2**31]]


def data(offset: int, producer_id: int) -> BatchView:
    made = build_batch(
        [Record(offset, 0, b"k", b"v")],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    return BatchView(memoryview(made))


def marker(offset: int, producer_id: int, kind: ControlType) -> BatchView:
    made = build_end_marker(
        EndTransactionMarker(kind, 0),
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=0,
    )
    return BatchView(memoryview(made))


class TestTransactions:
    aborted = AbortedTransaction(1, 5, 9, 10)

    def test_batches_of_an_aborted_transaction_are_told_apart(self) -> None:
        walk = Transactions([self.aborted], from_offset=0)
        assert not walk.is_aborted(data(4, 1))
        assert walk.is_aborted(data(5, 1))
        assert not walk.is_aborted(data(6, 2))
        assert walk.is_aborted(data(8, 1))

    def test_a_marker_is_needed_while_its_transaction_has_batches(self) -> None:
        walk = Transactions([self.aborted], from_offset=0)
        walk.is_aborted(data(5, 1))
        walk.is_aborted(data(6, 2))
        assert not walk.is_marker_needless(marker(9, 1, ControlType.ABORT))
        assert not walk.is_marker_needless(marker(10, 2, ControlType.COMMIT))
        assert walk.take_still_aborted() == [self.aborted]
        assert walk.take_still_aborted() == []

    def test_without_batches_a_marker_is_needless(self) -> None:
        walk = Transactions([self.aborted], from_offset=0)
        assert walk.is_marker_needless(marker(9, 1, ControlType.ABORT))
        assert walk.is_marker_needless(marker(10, 2, ControlType.COMMIT))
        assert walk.take_still_aborted() == []

    def test_a_later_transaction_of_the_producer_is_not_taken_for_the_aborted_one(self) -> None:
        walk = Transactions([self.aborted], from_offset=0)
        assert walk.is_aborted(data(5, 1))
        # The marker at 9 is gone, its entry in the index is not.
        assert not walk.is_aborted(data(12, 1))

    def test_a_transaction_that_ended_before_the_walk_is_forgotten(self) -> None:
        walk = Transactions([self.aborted], from_offset=10)
        assert not walk.is_aborted(data(12, 1))
