import json
from pathlib import Path

import pytest

from millstream.cli.cluster_reassign import check_usage, chosen, parse_nodes, planned, read_plan
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.model import TopicPartition
from tests.cli.cluster_views import partition, view

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
