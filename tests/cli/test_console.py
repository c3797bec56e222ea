import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import click
import pytest

from millstream.cli.console import listen_address

_SECONDS_MAX = 60


def start(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "millstream", *arguments], stdout=subprocess.PIPE, text=True
    )


def line_after(process: "subprocess.Popen[str]", words: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(words):
            return line.removeprefix(words).strip()
    raise AssertionError(f"no line that begins with {words!r}")


def stop(process: "subprocess.Popen[str]") -> int:
    process.send_signal(signal.SIGTERM)
    code = process.wait(_SECONDS_MAX)
    assert process.stdout is not None
    process.stdout.close()
    return code


@pytest.mark.slow
def test_a_broker_serves_its_console_and_another_runs_alone(tmp_path: Path) -> None:
    node = start(
        *("broker", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"),
        *("--console", "127.0.0.1:0"),
    )
    bootstrap = line_after(node, "listening on ")
    url = line_after(node, "console on ")
    alone = start("console", "--listen", "127.0.0.1:0", "-b", bootstrap)
    other_url = line_after(alone, "console on ")
    for each in (url, other_url):
        with urllib.request.urlopen(f"{each}/api/v1/nodes", timeout=_SECONDS_MAX) as answer:
            assert len(json.load(answer)["rows"]) == 1
    assert stop(alone) == 0
    assert stop(node) == 0


def test_another_address_is_refused_without_a_login(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "millstream", "broker", "--data-dir", str(tmp_path)),
            *("--listen", "127.0.0.1:0", "--console", "0.0.0.0:0"),
        ],
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
    )
    assert done.returncode == 1
    assert "without a login the console listens on this machine only" in done.stderr


def test_a_login_needs_a_listener_with_sasl(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "millstream", "broker", "--data-dir", str(tmp_path)),
            *("--listen", "127.0.0.1:0", "--console", "127.0.0.1:0", "--console-login"),
        ],
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
    )
    assert done.returncode == 2
    assert "a login needs a listener with SASL" in done.stderr


def test_an_address_that_is_none_is_wrong_usage() -> None:
    with pytest.raises(click.UsageError, match="--listen"):
        listen_address("--listen", "host:port")
