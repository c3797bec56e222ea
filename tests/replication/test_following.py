"""The follower's rules: what an answer means for its log."""

import pytest

from millstream.errors import KafkaCode
from millstream.replication.following import (
    BackOff,
    CutBack,
    FetchAnswer,
    FetchPosition,
    Ignore,
    StartOver,
    TakeRecords,
    begin_following,
    cut_offset,
    next_fetch,
    take_answer,
)
from millstream.replication.leadership import Divergence
from millstream.storage.epochs import EpochCache

ASKED = FetchPosition(leader_id=1, leader_epoch=7, offset=100, last_epoch=5)


def epochs(*entries: tuple[int, int], end: int = 100) -> EpochCache:
    return EpochCache(entries or ((2, 0), (5, 40)), lambda: end)


def answer(
    code: KafkaCode = KafkaCode.NONE,
    *,
    diverging: Divergence | None = None,
    log_start_offset: int = 0,
) -> FetchAnswer:
    return FetchAnswer(code, 90, log_start_offset, diverging=diverging)


def test_a_follower_asks_from_its_end_with_the_last_epoch_of_its_cache() -> None:
    assert next_fetch(1, 7, epochs(), 100) == ASKED


def test_records_are_taken_with_the_leaders_marks() -> None:
    assert take_answer(ASKED, ASKED, answer(), epochs()) == TakeRecords(90, 0)


@pytest.mark.parametrize(
    "would_ask",
    [
        None,
        FetchPosition(leader_id=2, leader_epoch=7, offset=100, last_epoch=5),
        FetchPosition(leader_id=1, leader_epoch=8, offset=100, last_epoch=5),
        FetchPosition(leader_id=1, leader_epoch=7, offset=101, last_epoch=5),
        FetchPosition(leader_id=1, leader_epoch=7, offset=100, last_epoch=4),
    ],
)
def test_an_answer_to_another_question_is_ignored(would_ask: FetchPosition | None) -> None:
    for late in (answer(), answer(diverging=Divergence(2, 10))):
        assert take_answer(ASKED, would_ask, late, epochs()) == Ignore()


@pytest.mark.parametrize(
    ("diverging", "offset"),
    [
        # The leader's part of our last epoch is shorter.
        (Divergence(5, 70), 70),
        # The leader has more of an older epoch: ours of it ended before.
        (Divergence(2, 60), 40),
        (Divergence(2, 30), 30),
        # An epoch between two of ours: we have nothing of it.
        (Divergence(3, 90), 40),
        # Older than anything here.
        (Divergence(1, 10), 0),
    ],
)
def test_a_diverged_log_is_cut_to_what_both_may_share(diverging: Divergence, offset: int) -> None:
    step = take_answer(ASKED, ASKED, answer(diverging=diverging), epochs())
    assert step == CutBack(offset)


def test_a_cut_is_never_beyond_the_end() -> None:
    assert cut_offset(epochs(), 100, Divergence(5, 150)) == 100


def test_a_leader_that_cannot_say_is_no_reason_to_cut() -> None:
    step = take_answer(ASKED, ASKED, answer(diverging=Divergence(-1, -1)), epochs())
    assert step == BackOff(KafkaCode.UNKNOWN_LEADER_EPOCH)


def test_what_the_leader_has_deleted_is_skipped() -> None:
    out_of_range = answer(KafkaCode.OFFSET_OUT_OF_RANGE, log_start_offset=500)
    assert take_answer(ASKED, ASKED, out_of_range, epochs()) == StartOver(500)


def test_a_leader_that_does_not_say_where_it_begins_is_asked_again() -> None:
    out_of_range = answer(KafkaCode.OFFSET_OUT_OF_RANGE, log_start_offset=-1)
    step = take_answer(ASKED, ASKED, out_of_range, epochs())
    assert step == BackOff(KafkaCode.OFFSET_OUT_OF_RANGE)


@pytest.mark.parametrize(
    "code",
    [
        KafkaCode.FENCED_LEADER_EPOCH,
        KafkaCode.UNKNOWN_LEADER_EPOCH,
        KafkaCode.NOT_LEADER_OR_FOLLOWER,
        KafkaCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_refusal_changes_nothing(code: KafkaCode) -> None:
    assert take_answer(ASKED, ASKED, answer(code), epochs()) == BackOff(code)


def test_an_epoch_that_wrote_nothing_is_forgotten_when_following_begins() -> None:
    cache = epochs((2, 0), (5, 40), (6, 100))
    begin_following(cache, 100)
    assert cache.entries == [(2, 0), (5, 40)]
    assert next_fetch(1, 7, cache, 100) == ASKED
