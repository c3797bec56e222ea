import time
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
from click.testing import CliRunner

from millstream.cli import cluster_restart, cluster_view
from millstream.cli.cluster_restart import (
    _wait_in_sync,
    estimated,
    filled,
    finished_nodes,
    out_of_sync,
    restart_order,
    still_running,
    waited_for,
)
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.wire.apis.describe_cluster import DescribeClusterBroker
from tests.cli.cluster_views import FakeCluster, broker, partition, view


def test_the_controller_is_restarted_last() -> None:
    assert [node.broker_id for node in restart_order(view(), ())] == [2, 3, 1]
    assert [node.broker_id for node in restart_order(view(), (1, 2))] == [2, 1]
    with pytest.raises(CommandFailed, match="node 7 is not alive"):
        restart_order(view(), (7,))


def test_a_node_that_is_named_twice_is_restarted_once() -> None:
    assert [node.broker_id for node in restart_order(view(), (2, 3, 2))] == [2, 3]


def test_a_command_is_filled_word_by_word() -> None:
    words = filled("ssh {host} 'restart node-{node} {port}'", broker(2))
    assert words == ["ssh", "h2", "restart node-2 9092"]


def test_what_is_not_in_sync_delays_a_restart() -> None:
    lagging = [partition(1, in_sync=(1, 2)), partition(2, leader=-1)]
    assert out_of_sync(view(partition(0), *lagging)) == lagging


def test_a_restart_says_what_it_waits_for() -> None:
    lagging = partition(1, in_sync=(1, 2))
    alive = waited_for(view(lagging), broker(3), answers=True)
    assert alive == "node 3 is alive, 1 partition not in sync"
    dead = view(lagging, partition(2, in_sync=(1, 2)), nodes=(1, 2))
    text = waited_for(dead, broker(3), answers=True)
    assert text == "node 3 is not alive, 2 partitions not in sync"
    text = waited_for(view(), broker(3), answers=False)
    assert text == "node 3 is not answering yet, 0 partitions not in sync"


def test_a_node_that_was_killed_is_not_back_before_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until the controller notices, it is alive and in sync: the next one would be restarted while
    this one is down."""
    in_sync, lagging = view(partition()), view(partition(in_sync=(1, 2)))
    views = iter([in_sync, lagging, in_sync])
    answers = iter([False, True])
    monkeypatch.setattr(cluster_restart, "_answers", lambda *_: next(answers))
    monkeypatch.setattr(cluster_restart, "first_look", lambda *_: next(views))
    monkeypatch.setattr(cluster_restart, "_POLL_SECONDS", 0.0)
    _wait_in_sync("h1:9092", broker(3), view(), time.monotonic() + 60)
    assert next(views, None) is None


def unreachable() -> CommandFailed:
    return CommandFailed(
        "h3:9092 refused the connection. Is a broker running there?",
        exit_code=ExitCode.UNREACHABLE,
    )


def test_a_restart_waits_while_the_only_bootstrap_address_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long it takes: only `--wait` ends it."""
    seconds = 0.0

    def sleep(_: float) -> None:
        nonlocal seconds
        seconds += 30

    def connect(_: str) -> FakeCluster:
        if seconds < 500:
            raise unreachable()
        return FakeCluster(view(partition()))

    clock = SimpleNamespace(monotonic=lambda: seconds, sleep=sleep)
    monkeypatch.setattr(cluster_restart, "time", clock)
    monkeypatch.setattr(cluster_view, "time", clock)
    monkeypatch.setattr(cluster_view, "Cluster", connect)
    monkeypatch.setattr(cluster_restart, "_answers", lambda *_: seconds >= 500)
    _wait_in_sync("h3:9092", broker(3), view(), 600.0)
    assert 500 <= seconds < 600


def test_a_restart_that_waited_in_vain_says_which_address_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def connect(_: str) -> NoReturn:
        raise unreachable()

    monkeypatch.setattr(cluster_view, "Cluster", connect)
    monkeypatch.setattr(cluster_restart, "_answers", lambda *_: False)
    with pytest.raises(CommandFailed, match="node 3 is restarting, and h3:9092 does not") as failed:
        _wait_in_sync("h3:9092", broker(3), view(), time.monotonic() - 1)
    assert failed.value.exit_code is ExitCode.TIMEOUT


def test_a_restart_that_was_ended_goes_on_with_the_nodes_that_are_left() -> None:
    # The third and the fourth are on one machine.
    commands = {1: ["restart", "a"], 2: ["restart", "b"], 3: ["restart", "c"], 4: ["restart", "c"]}
    memory = {"1: restart a": 9_000.0, "2: restart b": 100.0, "3: upgrade c": 9_500.0}
    assert finished_nodes(memory, commands, 10_000.0) == {1: 9_000.0}, "an hour ago is forgotten"
    on_one_machine = finished_nodes({"3: restart c": 9_000.0}, commands, 10_000.0)
    assert on_one_machine == {3: 9_000.0}
    assert finished_nodes({"1: restart a": 20_000.0}, commands, 10_000.0) == {}, "not yet"


def test_a_restart_of_one_node_lets_an_unfinished_one_of_all_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(cluster_restart, "first_look", lambda *_: view())
    monkeypatch.setattr(cluster_restart, "_wait_in_sync", lambda *_: None)
    restarted: list[int] = []

    def restart_one(node: DescribeClusterBroker, *_: object) -> None:
        restarted.append(node.broker_id)
        if len(restarted) == 2:
            raise CommandFailed("node 3 still runs")

    monkeypatch.setattr(cluster_restart, "_restart", restart_one)

    def run(*words: str) -> None:
        options = ["--rolling", "--command", "restart {node}", "--yes", "--bootstrap", "h1:9092"]
        CliRunner().invoke(cluster_restart.restart, [*options, *words])

    run()
    assert restarted == [2, 3]
    run("--node", "3")
    assert restarted == [2, 3, 3]
    run()
    assert restarted == [2, 3, 3, 3, 1], "the second node is done"
    run()
    assert restarted[5:] == [2, 3, 1], "all were done"


def test_a_restart_estimates_what_is_left() -> None:
    assert estimated([10.0], 3) == "1 of 3, about 20 s left"
    assert estimated([10.0, 20.0], 3) == "2 of 3, about 15 s left"
    assert estimated([10.0, 20.0, 15.0], 3) == "3 of 3"


def test_a_node_that_the_command_has_not_stopped_is_named_with_what_to_do() -> None:
    text = still_running(2, ["ssh", "h2", "restart it"], 30.0)
    assert text.startswith("node 2 still runs 30 s after the command. The nodes after it were not")
    assert "Check that `ssh h2 'restart it'` restarts node 2" in text
    assert "run the same command again" in text
