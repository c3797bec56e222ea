import json
import logging
import os
import subprocess
import sys
from pathlib import Path

from millstream.cli.log_format import JsonFormatter, LineFormatter
from tests.support.terminal import HOSTILE, obeyed_by_terminals


def test_a_line_is_one_object_whatever_the_message_has() -> None:
    record = logging.LogRecord("a.b", logging.WARNING, "f", 1, 'two\nlines "%s"', ("é",), None)
    record.created = 0.25
    text = JsonFormatter().format(record)
    assert "\n" not in text
    assert json.loads(text) == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "WARNING",
        "logger": "a.b",
        "message": 'two\nlines "é"',
    }


def test_a_name_in_a_line_is_spelled_out_and_begins_no_other() -> None:
    arguments = (HOSTILE + "\nERROR all is lost",)
    record = logging.LogRecord("a", logging.WARNING, "f", 1, "member of %s", arguments, None)
    line = LineFormatter("%(levelname)s %(message)s").format(record)
    assert line.startswith("WARNING member of evil\\x1b[31m")
    assert line.endswith("\\nERROR all is lost")
    for text in (line, JsonFormatter().format(record)):
        assert "\n" not in text
        assert obeyed_by_terminals(text) == ""


def test_warnings_of_a_command_without_a_log_are_spelled_out() -> None:
    program = """
import logging, sys
import click
from millstream.cli import main
from millstream.cli.lazy import LazyCommand
import millstream.cli.confirming as module
@click.command()
def warn():
    logging.getLogger("a").warning("member of %s", sys.stdin.read())
module.warn = warn
main.root._table = {"warn": LazyCommand("millstream.cli.confirming", "warn", "")}
main.main(["warn"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=HOSTILE.encode(),
        capture_output=True,
        timeout=60,
        check=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    said = done.stderr.decode()
    assert said.startswith("member of evil\\x1b[31m")
    assert obeyed_by_terminals(said) == ""


def test_an_exception_in_a_line_has_lines_of_its_own() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "f", 1, "failed", (), sys.exc_info())
    text = LineFormatter("%(message)s").format(record)
    assert text.startswith("failed\nTraceback")
    assert obeyed_by_terminals(text) == ""


def test_an_exception_is_in_the_object() -> None:
    try:
        raise ValueError("why")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "f", 1, "failed", (), sys.exc_info())
    found = json.loads(JsonFormatter().format(record))
    assert found["exception"].endswith("ValueError: why")


def test_a_node_logs_json(tmp_path: Path) -> None:
    # It cannot start: its log says why, and it ends.
    done = subprocess.run(
        [
            *(sys.executable, "-m", "millstream", "broker", "--data-dir", str(tmp_path)),
            *("--listen", "0.0.0.0:0", "--set", "allow.insecure.listeners=true"),
            *("--log-format", "json", "--console", "0.0.0.0:0"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("{")]
    found = [json.loads(line) for line in lines]
    assert any("open to the network" in one["message"] for one in found), done.stderr
