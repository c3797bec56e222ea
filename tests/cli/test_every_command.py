"""Every command when things go wrong: one clear line soon, the right exit code, no traceback.

Covers cli.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.support.apache_kafka import ApacheKafka
from tests.support.command_line import Ran, all_commands
from tests.support.node import MillstreamNode
from tests.support.ports import reserve_port

# What a person waits for a failure, and what a busy machine takes to start Python.
SECONDS_MAX = 5.0 + 15.0
SIDE_BY_SIDE = 3

# How each command that talks to a broker is called. FILE is a file that exists.
CALLS: dict[str, list[str]] = {
    "wait": ["--timeout", "0.1"],
    "topic add-partitions": ["t", "5", "-y"],
    "topic alter": ["t", "-c", "retention.ms=1000"],
    "topic create": ["t"],
    "topic delete": ["t", "-y"],
    "topic describe": ["t"],
    "topic list": [],
    "topic offsets": ["t"],
    "topic trim": ["t", "--consumed-by", "g", "-y"],
    "produce": ["t"],
    "consume": ["t", "-e"],
    "export": ["t", "--to", "out.jsonl"],
    "import": ["t", "--from", "FILE"],
    "mirror": ["t", "--to", "BOOTSTRAP", "--as", "u", "-e"],
    "bench consume": ["-n", "10"],
    "bench e2e": ["-n", "10"],
    "bench produce": ["-n", "10"],
    "group delete": ["g", "-y"],
    "group describe": ["g"],
    "group lag": [],
    "group list": [],
    "group reset": ["g", "--to", "end", "-y"],
    "storage compact": ["t"],
    "txn abort": ["id"],
    "txn describe": ["id"],
    "txn hanging": [],
    "txn list": [],
    "user add": ["name", "--password-file", "FILE"],
    "user delete": ["name", "-y"],
    "user list": [],
    "user password": ["name", "--password-file", "FILE"],
    "cluster advise": [],
    "cluster decommission": ["1", "-y"],
    "cluster describe": [],
    "cluster elect": ["-y"],
    "cluster health": [],
    "cluster reassign": ["t:0", "--to", "1", "-y"],
    "cluster rebalance": ["-y"],
    "cluster restart": ["--rolling", "--command", "true", "-y"],
    "node config": ["--all"],
    "acl add": ["--principal", "User:a", "--operation", "read", "--topic", "t"],
    "acl delete": ["--topic", "t", "-y"],
    "acl list": [],
    "quota delete": ["producer_byte_rate", "--user", "a"],
    "quota list": [],
    "quota set": ["producer_byte_rate=1000", "--user", "a"],
    "console": ["--listen", "127.0.0.1:0"],
    "ship": ["FILE", "--topic", "t", "--state", "state.json"],
    "loadgen": ["--topic", "t", "-n", "10", "--fast"],
    "demo": [],
    "doctor": [],
}
# `init` writes the address into a file, and connects to nothing.
WITHOUT_CONNECTION = {"pipeline init"}
# `wait` exists to wait, and `doctor` to list what is wrong.
EXIT_CODES = {"wait": 3, "doctor": 1}
# Of a topic that does not exist.
NEED_TOPIC = [
    "topic add-partitions", "topic alter", "topic delete", "topic describe", "topic offsets",
    "topic trim", "produce", "consume", "export", "import", "mirror", "storage compact", "ship",
    "loadgen",
]  # fmt: skip
PRINT_SOMETHING = [
    "topic list", "topic describe", "topic offsets", "consume", "group list", "group lag",
    "txn list", "cluster describe", "cluster health", "node config", "doctor", "quota list",
]  # fmt: skip


@pytest.fixture(scope="module")
def commands() -> dict[str, click.Command]:
    return all_commands()


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., "subprocess.Popen[str]"]:
    (tmp_path / "FILE").write_text("secret-of-eight\n")
    (tmp_path / "FILE.jsonl").write_text('{"value": "x"}\n')

    def begin(
        name: str, bootstrap: str, stdout: object = subprocess.PIPE
    ) -> "subprocess.Popen[str]":
        file = "FILE.jsonl" if name == "import" else "FILE"
        given = [{"FILE": file, "BOOTSTRAP": bootstrap}.get(each, each) for each in CALLS[name]]
        return subprocess.Popen(
            [sys.executable, "-m", "millstream", *name.split(), *given, "-b", bootstrap],
            cwd=tmp_path,
            env={**os.environ, "MILLSTREAM_CONFIG": os.devnull, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=stdout,  # type: ignore[call-overload]
            stderr=subprocess.PIPE,
            text=True,
        )

    return begin


def finish(process: "subprocess.Popen[str]") -> Ran:
    output, errors = process.communicate(timeout=120)
    return Ran(process.returncode, output or "", errors)


def problems_of(names: list[str], judge: Callable[[str], str | None]) -> dict[str, str]:
    """What is wrong with each command, as `judge` sees it."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return {n: text for n, text in zip(names, pool.map(judge, names), strict=True) if text}


def unclear(ran: Ran, code: int) -> str | None:
    lines = ran.errors.strip().splitlines()
    if ran.exit_code != code or len(lines) != 1 or "Traceback" in ran.errors:
        return f"{ran.exit_code} {ran.errors[-2000:]}"
    return None


@contextmanager
def listener(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0), backlog=200) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_the_table_has_every_command_that_talks_to_a_broker(
    commands: dict[str, click.Command],
) -> None:
    talking = {n for n, c in commands.items() if any(p.name == "bootstrap" for p in c.params)}
    assert talking - WITHOUT_CONNECTION == set(CALLS)


def test_every_command_has_help_with_an_explained_purpose(
    commands: dict[str, click.Command],
) -> None:
    runner = CliRunner()
    for name, command in commands.items():
        shown = runner.invoke(command, ["--help"])
        assert shown.exit_code == 0, name
        assert "Usage:" in shown.output, name
        assert command.help, name


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_broker_that_is_not_there(start: Callable[..., "subprocess.Popen[str]"]) -> None:
    address = f"127.0.0.1:{reserve_port()}"

    def judge(name: str) -> str | None:
        began = time.monotonic()
        ran = finish(start(name, address))
        late = time.monotonic() - began > SECONDS_MAX
        return "too late" if late else unclear(ran, EXIT_CODES.get(name, 4))

    assert problems_of(list(CALLS), judge) == {}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["http", "silent"])
def test_a_port_that_is_not_kafka(start: Callable[..., "subprocess.Popen[str]"], kind: str) -> None:
    held: list[socket.socket] = []

    def speak_http(connection: socket.socket) -> None:
        with connection:
            connection.recv(1000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with listener(speak_http if kind == "http" else held.append) as address:

        def judge(name: str) -> str | None:
            began = time.monotonic()
            ran = finish(start(name, address))
            late = time.monotonic() - began > SECONDS_MAX
            return "too late" if late else unclear(ran, EXIT_CODES.get(name, 4))

        found = problems_of(list(CALLS), judge)
        for each in held:
            each.close()
    assert found == {}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_while_nothing_answers(start: Callable[..., "subprocess.Popen[str]"]) -> None:
    def judge(name: str) -> str | None:
        connected = threading.Event()
        held: list[socket.socket] = []

        def hold(connection: socket.socket) -> None:
            held.append(connection)
            connected.set()

        with listener(hold) as address:
            process = start(name, address)
            if not connected.wait(60):
                return "does not connect"
            process.send_signal(signal.SIGINT)
            began = time.monotonic()
            ran = finish(process)
            for each in held:
                each.close()
        if time.monotonic() - began > SECONDS_MAX:
            return "too late"
        return None if ran.exit_code == 130 and "Traceback" not in ran.errors else str(ran)

    assert problems_of(list(CALLS), judge) == {}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with MillstreamNode(tmp_path_factory.mktemp("node") / "data", "--dev") as running:
        prepare(running.bootstrap)
        yield running.bootstrap


def prepare(bootstrap: str) -> None:
    """The topic `t` with a record, and the group `g`."""
    for arguments, lines in (
        (["topic", "create", "t"], ""),
        (["produce", "t"], "x\n"),
        (["consume", "t", "-e", "--group", "g"], ""),
    ):
        subprocess.run(
            [sys.executable, "-m", "millstream", *arguments, "-b", bootstrap],
            input=lines.encode(),
            check=True,
            capture_output=True,
            timeout=120,
        )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_topic_that_does_not_exist(
    node: str, start: Callable[..., "subprocess.Popen[str]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NEED_TOPIC:
        missing = ["missing" if each == "t" else each for each in CALLS[name]]
        monkeypatch.setitem(CALLS, name, missing)

    def judge(name: str) -> str | None:
        ran = finish(start(name, node))
        return unclear(ran, 1) or (None if "missing does not exist" in ran.errors else ran.errors)

    assert problems_of(NEED_TOPIC, judge) == {}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_output_that_is_full_or_closed(
    node: str, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    def judge_full(name: str) -> str | None:
        with open("/dev/full", "w") as full:
            ran = finish(start(name, node, full))
        expected = "millstream: cannot write the output: No space left on device\n"
        return None if (ran.exit_code, ran.errors) == (1, expected) else str(ran)

    def judge_closed(name: str) -> str | None:
        reading, writing = os.pipe()
        os.close(reading)
        process = start(name, node, writing)
        os.close(writing)
        ran = finish(process)
        return None if (ran.exit_code, ran.errors) == (141, "") else str(ran)

    assert problems_of(PRINT_SOMETHING, judge_full) == {}
    assert problems_of(PRINT_SOMETHING, judge_closed) == {}


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(600)
def test_a_sample_on_apache_kafka(
    tmp_path: Path, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    with ApacheKafka(tmp_path / "kafka") as kafka:
        prepare(kafka.bootstrap)
        sample = [
            "wait", "topic list", "topic describe", "topic offsets", "consume", "group list",
            "group describe", "group lag", "txn list", "cluster describe", "export", "bench e2e",
            "mirror", "loadgen",
        ]  # fmt: skip
        failed = {}
        for name in sample:
            ran = finish(start(name, kafka.bootstrap))
            if ran.exit_code != 0 or "Traceback" in ran.errors:
                failed[name] = str(ran)
        assert failed == {}
