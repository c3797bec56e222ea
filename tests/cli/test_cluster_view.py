import pytest

from millstream.cli import cluster_view
from millstream.cli.cluster_view import (
    PartitionView,
    parse_settings,
    patiently,
    size_text,
    time_text,
    view_of,
)
from millstream.cli.connection import check
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.errors import KafkaCode
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


@pytest.mark.parametrize("code", [KafkaCode.NOT_CONTROLLER, KafkaCode.REQUEST_TIMED_OUT])
def test_a_cluster_that_cannot_now_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, code: KafkaCode
) -> None:
    codes = iter([code, code, KafkaCode.NONE])
    monkeypatch.setattr(cluster_view, "Cluster", lambda _: FakeCluster(view()))
    monkeypatch.setattr(cluster_view, "_RETRY_PAUSE_SECONDS", 0.0)
    patiently("h1:9092", lambda _: check(next(codes), "reassignment"))
    assert next(codes, None) is None


def test_a_cluster_that_never_can_is_no_cluster_that_was_not_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_view, "Cluster", lambda _: FakeCluster(view()))
    monkeypatch.setattr(cluster_view, "_RETRY_SECONDS_MAX", -1.0)
    with pytest.raises(CommandFailed, match="reassignment: REQUEST_TIMED_OUT") as failed:
        patiently("h1:9092", lambda _: check(KafkaCode.REQUEST_TIMED_OUT, "reassignment"))
    assert failed.value.exit_code is ExitCode.FAILED
