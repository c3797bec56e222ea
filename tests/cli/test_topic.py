"""What is said beside a topic's creation. The commands themselves are in test_commands."""

from millstream.cli.topic import min_isr_warning


def test_more_in_sync_than_there_are_replicas_is_warned_of() -> None:
    warning = min_isr_warning("3", 2)
    assert warning is not None
    assert "min.insync.replicas=3 exceeds the number of replicas of a partition, 2" in warning


def test_a_number_that_can_be_reached_is_not() -> None:
    assert min_isr_warning("2", 2) is None
    assert min_isr_warning("nonsense", 2) is None
