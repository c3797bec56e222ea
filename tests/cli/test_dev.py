"""`millstream dev` as a process.

Covers cli/dev.py, cli/example_topic.py, cli/node_main.py.
"""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command_line import run_millstream
from tests.support.rest_client import RestClient

pytestmark = pytest.mark.slow
# Each can be read by the next.
KINDS = ("int", "long")


@contextmanager
def dev(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "millstream", "dev", "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_it_serves_an_example_and_leaves_nothing_behind() -> None:
    with dev("--json") as (_, line):
        ready = json.loads(line)
        assert Path(ready["data_dir"]).is_dir()
        ran = run_millstream("consume", "example", "-e", "-f", "%k ", bootstrap=ready["bootstrap"])
        assert ran.output == "alice bob alice "
    assert not Path(ready["data_dir"]).exists()


def test_it_serves_the_console() -> None:
    with dev("--json", "--console-port", "0") as (_, line):
        url = json.loads(line)["console"]
        with urllib.request.urlopen(url, timeout=30) as page:
            assert b"example" in page.read()
    with dev("--json", "--no-console") as (_, line):
        assert json.loads(line)["console"] is None


def test_it_serves_a_schema_registry_that_keeps_its_schemas(tmp_path: Path) -> None:
    for number in range(2):
        with dev("--json", "--registry-port", "0", "--data-dir", str(tmp_path)) as (_, line):
            rest = RestClient(json.loads(line)["registry"])
            assert rest.register("s", '"string"').body == {"id": 1}
            assert rest.register("t", f'{{"type":"array","items":"{KINDS[number]}"}}').body == {
                "id": number + 2
            }
    with dev("--json", "--no-registry") as (_, line):
        assert json.loads(line)["registry"] is None


def test_a_registry_that_is_not_ready_does_not_keep_it_from_stopping() -> None:
    with dev("--json", "--registry-port", "0", "--no-console") as (_, line):
        assert json.loads(line)["registry"]


def test_a_directory_that_is_given_is_kept(tmp_path: Path) -> None:
    for _ in range(2):
        with dev("--json", "--data-dir", str(tmp_path / "data")) as (_, line):
            bootstrap = json.loads(line)["bootstrap"]
            ran = run_millstream("consume", "example", "-e", "-f", "%o ", bootstrap=bootstrap)
            # The second time, the example is there.
            assert ran.output == "0 1 2 "


def test_it_says_what_to_try_next_and_that_works() -> None:
    with dev() as (process, line):
        bootstrap = line.removeprefix("listening on ").strip()
        assert process.stderr is not None
        text = ""
        while "Ctrl-C" not in text:
            text += process.stderr.readline()
        commands = [each.strip() for each in text.splitlines() if each.startswith("  ")]
        assert len(commands) == 4
        for command in commands:
            assert bootstrap in command or "storage" in command
            program = command.replace("millstream ", f"{sys.executable} -m millstream ")
            subprocess.run(program, shell=True, check=True, timeout=60, capture_output=True)


def test_a_port_in_use_is_one_line() -> None:
    with dev("--json") as (_, line):
        port = json.loads(line)["bootstrap"].rpartition(":")[2]
        ran = run_millstream("dev", "--port", port)
    assert ran.exit_code == 1
    assert ran.output == ""
    assert f":{port}" in ran.errors
    assert "Traceback" not in ran.errors


def test_without_the_example_it_says_how_to_create_a_topic() -> None:
    with dev("--no-example", "--no-console", "--no-registry") as (process, _):
        assert process.stderr is not None
        shown = [process.stderr.readline() for _ in range(5)]
    assert shown[-1].startswith("  millstream topic create example -b ")
