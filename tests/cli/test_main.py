"""The command as a whole: help, versions, wrong usage, failures."""

import json
import re
import socket
import subprocess
import sys

import pytest

from millstream import __version__
from millstream.cli.main import root
from tests.support.command_line import run_millstream


def test_help_names_every_command() -> None:
    ran = run_millstream("--help")
    assert ran.exit_code == 0
    for name in ("broker", "topic", "produce", "consume", "storage"):
        assert f"\n  {name} " in ran.output


def test_help_is_quick_since_it_loads_nothing_but_click_and_the_names_of_commands() -> None:
    code = (
        "import sys\nbefore = set(sys.modules)\n"
        "from millstream.cli.main import root\n"
        "root.get_help(root.make_context('millstream', [], resilient_parsing=True))\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    loaded = done.stdout.split()
    assert "asyncio" not in loaded
    others = {name.split(".")[0] for name in loaded} - sys.stdlib_module_names
    assert others == {"click", "millstream"}
    assert [name for name in loaded if name.startswith("millstream.")] == [
        "millstream.cli",
        "millstream.cli.failure",
        "millstream.cli.lazy",
        "millstream.cli.main",
        "millstream.errors",
    ]


def test_every_command_of_the_table_loads_and_has_help() -> None:
    context = root.make_context("millstream", [], resilient_parsing=True)
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        assert command is not None
        assert command.help, f"{name} has no help"


def test_the_version_is_printed_with_what_is_compiled() -> None:
    printed = run_millstream("--version").output
    used = "(compiled|pure Python)"
    assert re.fullmatch(
        rf"millstream {re.escape(__version__)} \(record loops: {used}, receiving: {used}\)\n",
        printed,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing-like-this"],
        ["topic", "create"],
        ["topic", "create", "x", "-c", "no-equals"],
        ["topic", "create", "x", "-p", "100001"],
        ["broker", "--data-dir", ""],
        ["broker", "--listen", "nowhere"],
        ["broker", "--listen", "127.0.0.1"],
        ["consume", "x", "-o", "soon"],
        ["consume", "x", "-f", "%q"],
        ["produce", "x", "-k", "a", "-K", ":"],
    ],
)
def test_wrong_usage_exits_with_2_and_prints_nothing_to_stdout(arguments: list[str]) -> None:
    ran = run_millstream(*arguments)
    assert ran.exit_code == 2
    assert ran.output == ""
    assert "Error:" in ran.errors


def test_python_without_assertions_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-O", "-m", "millstream", "--version"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 1
    assert "python -O" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["topic", "list"], ["produce", "x"], ["consume", "x"], ["topic", "describe", "x"]]
)
def test_an_unreachable_broker_is_one_line_and_exit_code_4(arguments: list[str]) -> None:
    # Taken, so that nobody else listens there, but not listened on.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = run_millstream(*arguments, bootstrap=address)
    assert ran.exit_code == 4
    assert ran.output == ""
    assert ran.errors.count("\n") == 1
    assert f"{address} refused the connection" in ran.errors


def test_failures_are_json_for_programs() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = run_millstream("topic", "list", "--json", bootstrap=address)
    error = json.loads(ran.errors)["error"]
    assert (ran.exit_code, ran.output, error["exit_code"]) == (4, "", 4)
    assert "refused the connection" in error["message"]
    ran = run_millstream("topic", "list", "--json", "--nonsense")
    assert json.loads(ran.errors)["error"]["exit_code"] == ran.exit_code == 2
