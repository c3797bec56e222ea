import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from millstream.cli import cluster_view
from millstream.cli.cluster_reassign import (
    Cancelling,
    check_usage,
    chosen,
    parse_nodes,
    planned,
    read_plan,
    reassign,
)
from millstream.cli.cluster_view import TOPIC
from millstream.cli.failure import CommandFailed, ExitCode, NotNow
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from tests.cli.cluster_views import FakeCluster, partition, view

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_plan_is_kafkas_json(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    rows = [{"topic": "t", "partition": 1, "replicas": [3, 1], "log_dirs": ["any", "any"]}]
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    assert read_plan(path) == {T1: (3, 1)}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"partitions": [{"topic": "t"}]}'])
def test_what_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(CommandFailed, match="is no plan"):
        read_plan(path)


def test_partitions_are_chosen_by_topic_or_number() -> None:
    seen = view(partition(0), partition(1))
    assert chosen(seen, ("t",)) == [T0, T1]
    assert chosen(seen, ("t:1", "t:1")) == [T1]
    with pytest.raises(CommandFailed, match="there is no t:7"):
        chosen(seen, ("t:7",))


def test_nodes_are_numbers() -> None:
    assert parse_nodes("1,2, 3") == (1, 2, 3)
    with pytest.raises(CommandFailed):
        parse_nodes("one")


def test_what_is_there_already_is_no_move() -> None:
    moves = planned(view(partition(0), partition(1)), {T0: (1, 2, 3), T1: (2, 1)}, {T1: 7})
    assert [(move.where, move.before, move.after, move.size_bytes) for move in moves] == [
        (T1, (1, 2, 3), (2, 1), 7)
    ]


def test_a_move_in_progress_begins_where_the_partition_was() -> None:
    moving = partition(0, replicas=(4, 1, 2), adding=(4,), removing=(2,))
    [move] = planned(view(moving, nodes=(1, 2, 4)), {T0: (1, 2)}, {})
    assert move.before == (1, 2)


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({TopicPartition("u", 0): (1,)}, "no partition u-0"),
        ({T0: (1, 9)}, "node 9 is not alive"),
        ({T0: (1, 1)}, "twice"),
        ({T0: ()}, "or none"),
    ],
)
def test_what_no_cluster_would_accept_is_said_before(wanted, problem: str) -> None:
    with pytest.raises(CommandFailed, match=problem):
        planned(view(partition(0)), wanted, {})


@pytest.mark.parametrize(
    ("places", "nodes", "path", "cancel"),
    [
        ((), None, None, False),
        (("t",), None, None, False),
        ((), "1", None, False),
        (("t",), "1", Path("plan.json"), False),
        (("t",), None, Path("plan.json"), True),
        (("t",), "1", None, True),
    ],
)
def test_options_that_contradict_each_other_are_refused(places, nodes, path, cancel) -> None:
    with pytest.raises(CommandFailed) as failed:
        check_usage(places, nodes, path, cancel=cancel)
    assert failed.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("places", "nodes", "path", "cancel"),
    [
        (("t",), "1", None, False),
        ((), None, Path("plan.json"), False),
        ((), None, Path("plan.json"), True),
        (("t",), None, None, True),
        ((), None, None, True),
    ],
)
def test_what_is_meant_is_clear(places, nodes, path, cancel) -> None:
    check_usage(places, nodes, path, cancel=cancel)


U0 = TopicPartition("u", 0)
THROTTLED = {"follower.replication.throttled.replicas": "0:4"}


def three_moves() -> FakeCluster:
    def moving(number: int, topic: str) -> cluster_view.PartitionView:
        return partition(number, topic=topic, replicas=(4, 1, 2), adding=(4,), removing=(2,))

    cluster = FakeCluster(view(moving(0, "t"), moving(1, "t"), moving(0, "u"), nodes=(1, 2, 4)))
    cluster.options = {(TOPIC, "t"): dict(THROTTLED), (TOPIC, "u"): dict(THROTTLED)}
    return cluster


def cancelled(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, *words: str) -> Result:
    monkeypatch.setattr(cluster_view, "Cluster", lambda _: cluster)
    monkeypatch.setattr(cluster_view, "_RETRY_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(cluster_view, "_RETRY_SECONDS_MAX", 0.2)
    return CliRunner().invoke(reassign, ["--cancel", "--yes", "--bootstrap", "h1:9092", *words])


@pytest.mark.parametrize(
    "code", [KafkaCode.INVALID_REPLICA_ASSIGNMENT, KafkaCode.REQUEST_TIMED_OUT]
)
def test_a_move_that_cannot_be_cancelled_holds_up_no_others(
    monkeypatch: pytest.MonkeyPatch, code: KafkaCode
) -> None:
    cluster = three_moves()
    cluster.refusals[T0] = code
    ran = cancelled(cluster, monkeypatch)
    assert "cancelled the move of 2 partitions" in ran.stderr
    assert isinstance(ran.exception, CommandFailed)
    assert ran.exception.exit_code is ExitCode.FAILED
    assert str(ran.exception) == (
        f"the move of t-0 cannot be cancelled: {code.name}. What is not cancelled goes on: let it"
        " end, or cancel it again later"
    )
    assert [where for where in (T0, T1, U0) if cluster.view.is_moving(where)] == [T0]
    # Nothing of the other topic moves any more.
    assert cluster.options == {(TOPIC, "t"): THROTTLED}


def test_a_program_learns_which_moves_were_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = three_moves()
    cluster.refusals = dict.fromkeys((T0, T1), KafkaCode.INVALID_REPLICA_ASSIGNMENT)
    ran = cancelled(cluster, monkeypatch, "--json")
    assert [(one["topic"], one["partition"]) for one in json.loads(ran.stdout)] == [("u", 0)]
    assert "; nor can 1 other move" in str(ran.exception)


def test_when_all_moves_are_cancelled_no_throttle_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = three_moves()
    ran = cancelled(cluster, monkeypatch)
    assert ran.exit_code == 0, ran.output
    assert "cancelled the move of 3 partitions" in ran.stderr
    assert cluster.options == {}


def test_moves_that_are_not_cancelled_yet_are_asked_for_again() -> None:
    cluster = three_moves()
    cluster.refusals[T0] = KafkaCode.REQUEST_TIMED_OUT
    cancelling = Cancelling([T0, T1])
    with pytest.raises(NotNow):
        cancelling.step(cluster)
    assert cancelling.left == [T0]
    # The request that timed out was carried out later.
    cluster.refusals[T0] = KafkaCode.NO_REASSIGNMENT_IN_PROGRESS
    cancelling.step(cluster)
    assert (cancelling.left, cancelling.ended, cancelling.refused) == ([], set(), {})


def test_moves_that_had_ended_are_told_from_cancelled_ones() -> None:
    cluster = three_moves()
    gone = TopicPartition("gone", 0)
    cluster.refusals[gone] = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    cancelling = Cancelling([T0, gone, TopicPartition("t", 7)])
    cancelling.step(cluster)
    assert cancelling.ended == {gone, TopicPartition("t", 7)}
    cancelling.check()
