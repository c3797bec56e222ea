import json
import logging
import subprocess
import sys
from pathlib import Path

from millstream.cli.log_format import JsonFormatter


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
