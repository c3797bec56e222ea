"""`millstream run`: a node beside another command."""

import asyncio
import importlib
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from millstream.cli.run import parse_topic
from tests.support.command_line import run_millstream

# The package's name for it may be the command.
run = importlib.import_module("millstream.cli.run")


def test_topics_may_have_a_number_of_partitions() -> None:
    assert parse_topic("orders") == ("orders", 1)
    assert parse_topic("orders:3") == ("orders", 3)
    for text in ("", ":3", "orders:0", "orders:x"):
        with pytest.raises(click.UsageError):
            parse_topic(text)


@pytest.mark.slow
def test_the_command_finds_the_node_and_its_exit_code_is_ours() -> None:
    script = (
        f'test "$KAFKA_BOOTSTRAP_SERVERS" = "$MILLSTREAM_BOOTSTRAP" || exit 1;'
        f" {sys.executable} -m millstream topic list --json; exit 7"
    )
    ran = run_millstream("run", "--topic", "orders:3", "--", "sh", "-c", script)
    assert ran.exit_code == 7, ran.errors
    assert '"partitions": 3' in ran.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["no-such-program"], 127),
        (["/etc/passwd"], 126),
        (["sh", "-c", "kill -9 $$"], 137),
    ],
)
def test_exit_codes_are_those_of_a_shell(command: list[str], code: int) -> None:
    assert run_millstream("run", "--", *command).exit_code == code


@pytest.mark.parametrize("has_started", [False, True])
def test_a_command_that_a_signal_kept_from_running_did_not_succeed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_started: bool
) -> None:
    def stopped(config: object, while_serving: Any, *, dev: bool) -> int:
        stop = asyncio.Event()
        stop.set()
        endpoint = SimpleNamespace(host="127.0.0.1", port=1)
        node = SimpleNamespace(endpoints=[endpoint])
        return asyncio.run(while_serving(node, stop)) if has_started else 0

    monkeypatch.setattr(run, "run_node", stopped)
    mark = tmp_path / "ran"
    ran = CliRunner().invoke(run.run, ["--", "touch", str(mark)], standalone_mode=False)
    assert ran.return_value == 130
    assert not mark.exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_for_the_command_which_may_end_in_its_own_way(
    tmp_path: Path, number: signal.Signals
) -> None:
    script = "trap 'exit 5' TERM INT; echo ready; while :; do sleep 0.05; done"
    command = [sys.executable, "-m", "millstream", "run", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(
        [*command, "--", "sh", "-c", script], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        assert process.wait(60) == 5
    # The node stopped cleanly.
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
