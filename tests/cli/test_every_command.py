"""Every command when things go wrong: one clear line soon, the right exit code, no traceback.

Covers cli.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.support.apache_kafka import ApacheKafka
from tests.support.command_line import Ran, all_commands
from tests.support.node import MillstreamNode
from tests.support.ports import reserve_port
from tests.support.waiting import wait_until

# What a person waits for a failure, and what a busy machine takes to start Python.
SECONDS_MAX = 5.0 + 15.0
SIDE_BY_SIDE = 3
TOO_LATE = "too late"
# Of commands that only wait.
WAITING_SIDE_BY_SIDE = 12

Broker = MillstreamNode | ApacheKafka
PROJECT = Path(__file__).parent.parent.parent

# How each command that talks to a broker is called. FILE is a file that exists.
CALLS: dict[str, list[str]] = {
    "wait": ["--timeout", "0.1"],
    "topic add-partitions": ["t", "5", "-y"],
    "topic alter": ["t", "-c", "retention.ms=1000", "-y"],
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
    "share dead": ["g"],
    "share delete": ["g", "-y"],
    "share describe": ["g"],
    "share lag": [],
    "share list": [],
    "share peek": ["g"],
    "share reset": ["g", "--to", "end", "-y"],
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
    "registry": ["--listen", "127.0.0.1:0"],
    "ship": ["FILE", "--topic", "t", "--state", "state.json"],
    "loadgen": ["--topic", "t", "-n", "10", "--fast"],
    "templates": ["t"],
    "query": ["SELECT count(*) FROM t", "--topic", "t"],
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
    "loadgen", "templates", "query",
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


def problems_of(
    names: list[str], judge: Callable[[str], str | None], side_by_side: int = SIDE_BY_SIDE
) -> dict[str, str]:
    """What is wrong with each command, as `judge` sees it."""
    with ThreadPoolExecutor(side_by_side) as pool:
        found = dict(zip(names, pool.map(judge, names), strict=True))
    # Whoever was late gets another chance, alone: the machine may be busy.
    for name in [name for name, text in found.items() if text == TOO_LATE]:
        found[name] = judge(name)
    return {name: text for name, text in found.items() if text}


# What a command that has worked for ten seconds has printed before it failed.
_PROGRESS = re.compile(r"[\d,]+ lines acknowledged, [\d,]+ lines/s|sent [\d,]+ records")


def unclear(ran: Ran, code: int) -> str | None:
    lines = [line for line in ran.errors.strip().splitlines() if not _PROGRESS.fullmatch(line)]
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


# Each of these takes longer to import than a command may take to answer, or nearly.
LARGE = [
    "confluent_kafka", "pyspark", "pyarrow", "numpy", "pandas", "rich", "starlette", "uvicorn",
    "jinja2", "kazoo", "deltalake",
]  # fmt: skip
# What a command needs that asks a broker: neither an event loop nor the options of nodes.
QUICK = [
    "topic list", "topic describe", "topic offsets", "group list", "group describe", "group lag",
    "group reset", "cluster describe", "cluster health", "node config", "txn list", "wait",
]  # fmt: skip


def loaded_by(names: list[str], modules: list[str]) -> list[str]:
    """Which of the modules the definitions of these commands import."""
    program = (
        "import sys\nfrom tests.support.command_line import find_command\n"
        f"for name in {names!r}:\n    find_command(name)\n"
        f"print(*[each for each in {modules!r} if each in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    return found.stdout.split()


def test_no_command_imports_a_large_library_before_it_runs(
    commands: dict[str, click.Command],
) -> None:
    assert loaded_by(list(commands), LARGE) == []


def test_commands_that_only_ask_a_broker_import_little() -> None:
    assert loaded_by(QUICK, [*LARGE, "asyncio", "millstream.config"]) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_broker_that_is_not_there(start: Callable[..., "subprocess.Popen[str]"]) -> None:
    address = f"127.0.0.1:{reserve_port()}"

    def judge(name: str) -> str | None:
        began = time.monotonic()
        ran = finish(start(name, address))
        late = time.monotonic() - began > SECONDS_MAX
        return TOO_LATE if late else unclear(ran, EXIT_CODES.get(name, 4))

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
            return TOO_LATE if late else unclear(ran, EXIT_CODES.get(name, 4))

        found = problems_of(list(CALLS), judge, WAITING_SIDE_BY_SIDE)
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
            return TOO_LATE
        return None if ran.exit_code == 130 and "Traceback" not in ran.errors else str(ran)

    assert problems_of(list(CALLS), judge) == {}


@pytest.fixture(
    scope="module", params=["millstream", pytest.param("kafka", marks=pytest.mark.java)]
)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """One of each for all tests; the last one kills it."""
    folder = tmp_path_factory.mktemp("broker")
    with (
        ApacheKafka(folder / "kafka")
        if request.param == "kafka"
        else MillstreamNode(folder / "node", "--dev")
    ) as running:
        prepare(running.bootstrap)
        yield running


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
    broker: Broker, start: Callable[..., "subprocess.Popen[str]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NEED_TOPIC:
        missing = ["missing" if each == "t" else each for each in CALLS[name]]
        monkeypatch.setitem(CALLS, name, missing)

    def judge(name: str) -> str | None:
        ran = finish(start(name, broker.bootstrap))
        # Kafka has no request for it.
        is_foreign = name == "storage compact" and isinstance(broker, ApacheKafka)
        expected = "is no Millstream node" if is_foreign else "missing does not exist"
        return unclear(ran, 1) or (None if expected in ran.errors else ran.errors)

    assert problems_of(NEED_TOPIC, judge) == {}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_output_that_is_full_or_closed(
    broker: Broker, start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    def judge_full(name: str) -> str | None:
        with open("/dev/full", "w") as full:
            ran = finish(start(name, broker.bootstrap, full))
        expected = "millstream: cannot write the output: No space left on device\n"
        return None if (ran.exit_code, ran.errors) == (1, expected) else str(ran)

    def judge_closed(name: str) -> str | None:
        reading, writing = os.pipe()
        os.close(reading)
        process = start(name, broker.bootstrap, writing)
        os.close(writing)
        ran = finish(process)
        return None if (ran.exit_code, ran.errors) == (141, "") else str(ran)

    assert problems_of(PRINT_SOMETHING, judge_full) == {}
    assert problems_of(PRINT_SOMETHING, judge_closed) == {}


# Commands that run until somebody ends them. FILE and STATE are files, BOOTSTRAP is an address.
LASTING: dict[str, list[str]] = {
    "consume": ["t"],
    "consume in a group": ["t", "--group", "lasting"],
    "produce": ["t"],
    "mirror": ["t", "--to", "BOOTSTRAP", "--as", "lasting"],
    "loadgen": ["--topic", "t", "--rate", "50"],
    "bench produce": ["-n", "100000000"],
    "bench consume": ["-n", "100000000"],
    "topic list": ["--watch", "0.2"],
    "group lag": ["--watch", "0.2"],
    "ship": ["FILE", "--topic", "t", "--follow", "--state", "STATE"],
    "console": ["--listen", "127.0.0.1:0"],
    "registry": ["--listen", "127.0.0.1:0"],
}
SERVERS = {"console", "registry"}
# They wait until the broker is back.
OUTLIVE_BROKERS = {"ship", *SERVERS}


def begin_lasting(name: str, bootstrap: str, folder: Path) -> "subprocess.Popen[str]":
    places = {"BOOTSTRAP": bootstrap, "FILE": __file__, "STATE": str(folder / "state.json")}
    words = [places.get(each, each) for each in LASTING[name]]
    command = name.removesuffix(" in a group").split()
    return subprocess.Popen(
        [sys.executable, "-m", "millstream", *command, *words, "-b", bootstrap],
        env={**os.environ, "MILLSTREAM_CONFIG": os.devnull, "PYTHONUNBUFFERED": "1"},
        # Open and empty: `produce` waits for lines.
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def all_working(
    names: Iterable[str], bootstrap: str, folder: Path
) -> "Iterator[dict[str, subprocess.Popen[str]]]":
    started = {name: begin_lasting(name, bootstrap, folder) for name in names}
    port = int(bootstrap.rpartition(":")[2])
    try:
        for name, process in started.items():
            wait_until(partial(connects, process, port), f"{name} is connected")
        # Some have only said hello until now. Whatever each of them is doing then, it has to end.
        time.sleep(3)
        yield started
    finally:
        for process in started.values():
            process.kill()
            process.communicate()


def connects(process: "subprocess.Popen[str]", port: int) -> bool:
    """Has the process an established connection to the port?"""
    assert process.poll() is None, finish_open(process)
    own = set()
    for each in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            own.add(os.readlink(each))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(
        row[2].endswith(f":{port:04X}") and row[3] == "01" and f"socket:[{row[9]}]" in own
        for row in rows
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_while_it_works(broker: Broker, tmp_path: Path) -> None:
    with all_working(LASTING, broker.bootstrap, tmp_path) as started:
        began = time.monotonic()
        for process in started.values():
            process.send_signal(signal.SIGINT)
        ended = {name: finish_open(process) for name, process in started.items()}
        assert time.monotonic() - began < SECONDS_MAX
    # A server that is asked to stop has done what it should.
    expected = {name: 0 if name in SERVERS else 130 for name in LASTING}
    assert {name: ran.exit_code for name, ran in ended.items()} == expected
    assert [ran.errors for ran in ended.values() if "Traceback" in ran.errors] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_broker_that_dies_while_it_works(broker: Broker, tmp_path: Path) -> None:
    names = LASTING.keys() - OUTLIVE_BROKERS
    with all_working(names, broker.bootstrap, tmp_path) as started:
        broker.kill()
        began = time.monotonic()
        ended = {name: finish_open(process) for name, process in started.items()}
        assert time.monotonic() - began < SECONDS_MAX
    problems = {name: unclear(ran, 4) for name, ran in ended.items()}
    assert {name: text for name, text in problems.items() if text} == {}


def finish_open(process: "subprocess.Popen[str]") -> Ran:
    """What a process said that ends although its stdin is open."""
    assert process.stderr is not None
    process.wait(120)
    return Ran(process.returncode, "", process.stderr.read())
