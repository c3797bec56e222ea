import pytest

from millstream.cli.cluster_view import (
    PartitionView,
    parse_settings,
    size_text,
    time_text,
    view_of,
)
from millstream.cli.failure import CommandFailed
from millstream.model import TopicPartition
from tests.cli.cluster_views import FakeCluster, partition, view


def test_settings_are_set_or_deleted() -> None:
    wanted = parse_settings(["retention.ms=5", "a=b=c"], ["segment.bytes"])
    assert wanted == {"retention.ms": "5", "a": "b=c", "segment.bytes": None}


@pytest.mark.parametrize(("settings", "deleted"), [(["a"], []), (["=b"], []), (["a=1"], ["a"])])
def test_settings_that_make_no_sense_are_refused(settings: list[str], deleted: list[str]) -> None:
    with pytest.raises(CommandFailed):
        parse_settings(settings, deleted)


def test_the_target_of_a_move_is_without_what_it_removes() -> None:
    where = TopicPartition("t", 0)
    moving = PartitionView(where, 1, (4, 2, 1), (1, 2), adding=(4,), removing=(1,))
    assert moving.target == (4, 2)
    assert moving.before == (2, 1)
    assert moving.is_moving


def test_sizes_and_times_are_short() -> None:
    assert [size_text(n) for n in (0, 999, 1500, 2.5e9, 3e12)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.5 GB",
        "3.0 TB",
    ]
    assert [time_text(n) for n in (45, 600, 9000)] == ["45 s", "10 min", "2.5 h"]


def test_a_move_that_ends_during_the_look_has_ended() -> None:
    moving = view(partition(replicas=(1, 3, 2), adding=(3,), removing=(2,)))
    seen = view_of(FakeCluster(moving, view(partition(replicas=(1, 3)))))
    [state] = seen.partitions.values()
    assert state.replicas == (1, 3)
    assert not state.is_moving
