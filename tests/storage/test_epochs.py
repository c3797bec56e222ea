"""Leader epochs and where they end."""

from millstream.storage.epochs import EpochCache


def cache(*entries: tuple[int, int], next_offset: int = 100) -> EpochCache:
    return EpochCache(entries, lambda: next_offset)


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    epochs = cache((2, 0), (5, 20), (6, 50))
    assert epochs.end_offset_for(2) == (2, 20)
    assert epochs.end_offset_for(5) == (5, 50)
    assert epochs.end_offset_for(6) == (6, 100)


def test_an_epoch_in_between_answers_with_the_one_below() -> None:
    epochs = cache((2, 0), (5, 20))
    assert epochs.end_offset_for(4) == (2, 20)


def test_an_epoch_before_all_ends_where_the_first_begins() -> None:
    assert cache((2, 10), (5, 20)).end_offset_for(1) == (1, 10)


def test_unknown_epochs_have_no_end() -> None:
    assert cache((2, 0)).end_offset_for(3) == (-1, -1)
    assert cache((2, 0)).end_offset_for(-1) == (-1, -1)
    assert cache().end_offset_for(0) == (-1, -1)


def test_epochs_that_wrote_nothing_disappear() -> None:
    epochs = cache((2, 0))
    epochs.assign(3, 40)
    epochs.assign(4, 40)
    assert epochs.entries == [(2, 0), (4, 40)]
    assert epochs.latest == 4
    assert epochs.is_changed


def test_the_same_epoch_again_changes_nothing() -> None:
    epochs = cache((2, 0))
    epochs.assign(2, 40)
    assert epochs.entries == [(2, 0)]
    assert not epochs.is_changed


def test_truncation_from_both_ends() -> None:
    epochs = cache((2, 0), (5, 20), (6, 50))
    epochs.truncate_end(50)
    assert epochs.entries == [(2, 0), (5, 20)]
    epochs.truncate_start(30)
    assert epochs.entries == [(5, 30)]
    assert epochs.epoch_at(29) == -1
    assert epochs.epoch_at(30) == 5


def test_truncation_that_touches_nothing_is_no_change() -> None:
    epochs = cache((2, 10))
    epochs.truncate_start(10)
    epochs.truncate_start(5)
    epochs.truncate_end(11)
    assert epochs.entries == [(2, 10)]
    assert not epochs.is_changed
