"""`--json` of every command, against the shape that `docs/cli_json.md` promises.

Covers cli.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.apache_kafka import ApacheKafka
from tests.support.command_line import all_commands, run_millstream
from tests.support.json_shapes import documented_shapes, mismatch
from tests.support.node import MillstreamNode
from tests.support.tools import skip_if_java_is_left_out

SECONDS_MAX = 120
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
KAFKA_FILES = Path(__file__).parent.parent / "golden" / "kafka_4_3_0"

# Their output is another program's, or a file for another program.
WITHOUT_JSON = {
    "run", "completion", "generate alerts", "generate compose", "generate dockerfile",
    "generate grafana", "generate systemd",
}  # fmt: skip

# In this order: later ones use what earlier ones created. BOOTSTRAP, KAFKA (files that Kafka
# wrote) and PARTITION stand for places.
ON_A_NODE: list[tuple[str, list[str]]] = [
    ("wait", []),
    ("topic create", ["orders", "copied"]),
    ("produce", ["orders", "-k", "key", "-H", "name=value"]),
    ("import", ["orders", "--from", "records.jsonl"]),
    ("consume", ["orders", "-n", "1", "--group", "readers"]),
    ("topic list", ["--wide"]),
    ("topic describe", ["orders"]),
    ("topic offsets", ["orders", "--at", "-1h"]),
    ("topic alter", ["orders", "-c", "retention.ms=100000", "-d", "segment.bytes", "-y"]),
    ("topic add-partitions", ["orders", "2", "-y"]),
    ("topic trim", ["orders", "--consumed-by", "readers", "--dry-run"]),
    ("topic trim", ["orders", "--consumed-by", "readers", "-y"]),
    ("export", ["orders", "--to", "out.jsonl"]),
    ("mirror", ["orders", "--to", "BOOTSTRAP", "--as", "mirrored", "-e"]),
    ("ship", ["lines.log", "--topic", "copied", "--state", "state.json"]),
    ("loadgen", ["--topic", "copied", "-n", "10", "--fast"]),
    ("bench produce", ["-n", "10"]),
    ("bench consume", ["-n", "10"]),
    ("bench e2e", ["-n", "10"]),
    ("group list", []),
    ("group describe", ["readers"]),
    ("group lag", []),
    ("group reset", ["readers", "--to", "end", "--dry-run"]),
    ("group reset", ["readers", "--to", "beginning", "-y"]),
    ("group delete", ["readers", "-y"]),
    ("share reset", ["workers", "-t", "orders", "--to", "beginning", "-y"]),
    ("share list", []),
    ("share describe", ["workers"]),
    ("share lag", []),
    ("share peek", ["workers"]),
    ("share dead", ["workers", "--topic", "copied"]),
    ("share delete", ["workers", "-y"]),
    ("txn list", []),
    ("txn describe", ["payments"]),
    ("txn hanging", ["--older-than-minutes", "0"]),
    ("txn abort", ["payments"]),
    ("cluster describe", []),
    ("cluster health", []),
    ("cluster advise", ["--seconds", "1"]),
    ("cluster elect", ["-y"]),
    ("cluster rebalance", ["-y"]),
    ("cluster reassign", ["--cancel", "-y"]),
    ("node config", ["--all"]),
    ("node config", ["--all", "-c", "min.insync.replicas=1", "-y"]),
    ("user add", ["ann", "--password-file", "password"]),
    ("user list", []),
    ("user password", ["ann", "--password-file", "password"]),
    ("user delete", ["ann", "-y"]),
    ("user hash", ["--password-file", "password"]),
    ("acl add", ["--principal", "User:ann", "--operation", "read", "--topic", "orders"]),
    ("acl list", []),
    ("acl delete", ["--topic", "orders", "-y"]),
    ("quota set", ["producer_byte_rate=1000", "--user", "ann"]),
    ("quota list", []),
    ("quota delete", ["producer_byte_rate", "--user", "ann"]),
    ("topic alter", ["copied", "-c", "cleanup.policy=compact,delete", "-y"]),
    ("storage compact", ["copied"]),
    ("storage segments", ["KAFKA"]),
    ("storage dump", ["PARTITION", "--records"]),
    ("storage index", ["PARTITION"]),
    ("storage explain", ["PARTITION", "0"]),
    ("storage explain", ["PARTITION", "@2001-01-01"]),
    ("storage cache", ["KAFKA"]),
    ("storage forecast", ["KAFKA"]),
    ("storage verify", ["KAFKA"]),
    ("doctor", []),
    ("profile set", ["here", "bootstrap.servers=BOOTSTRAP", "sasl.password=${env:HOME}"]),
    ("profile list", []),
    ("profile show", ["here"]),
    ("profile use", ["here"]),
    ("profile delete", ["here"]),
    ("secure", ["secured"]),
    ("certs issue", ["secured", "ann"]),
    ("certs renew", ["secured", "ann"]),
    ("certs show", ["secured/ann.pem"]),
    ("pipeline init", ["pipeline.toml", "--topic", "copied"]),
    ("pipeline validate", ["pipeline.toml"]),
    ("pipeline diff", ["pipeline.toml"]),
    ("pipeline check", ["lines.log"]),
    ("query", ["SELECT key, value FROM copied", "--topic", "copied"]),
    ("templates", ["lines.log", "copied", "--before", "lines.log"]),
    ("topic delete", ["orders", "copied", "-y"]),
]
# Of Millstream alone; `restart` and the like need several nodes.
NOT_ON_KAFKA = {"storage compact"}
SERVERS = {"broker", "dev", "console", "registry", "zookeeper", "cluster start"}
IN_A_CLUSTER = {"cluster decommission", "cluster restart", "cluster adopt"}
WITH_SPARK = {
    "pipeline run", "pipeline status", "pipeline backfill", "pipeline rebuild",
    "report daily", "report weekly", "report monthly", "demo",
}  # fmt: skip
# Two documents of one command, and the one of failures.
MORE_SHAPES = {"cluster-advise-load", "error"}
SHAPES = documented_shapes()


def talks_to_broker(command: str) -> bool:
    return any(each.name == "bootstrap" for each in all_commands()[command].params)


def name_of_shape(command: str) -> str:
    return command.replace(" ", "-")


def test_every_command_prints_json_that_is_documented_and_tested() -> None:
    commands = all_commands()
    offering = {n for n, c in commands.items() if any("--json" in p.opts for p in c.params)}
    assert commands.keys() - offering == WITHOUT_JSON
    assert {name_of_shape(name) for name in offering} == SHAPES.keys() - MORE_SHAPES
    assert {name for name, _ in ON_A_NODE} | SERVERS | IN_A_CLUSTER | WITH_SPARK == offering


def problem_of(command: str, output: str) -> str | None:
    """What is wrong with a document, or with each line of a stream of them."""
    is_stream = command in ("consume", "storage dump")
    texts = output.splitlines() if is_stream else [output]
    try:
        values = [json.loads(text) for text in texts]
    except ValueError:
        return f"not JSON: {output[-300:]!r}"
    name = name_of_shape(command)
    found = [mismatch(value, SHAPES[name], command) for value in values]
    return next((text for text in found if text), None if values else "nothing")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLSTREAM_CONFIG", str(tmp_path / "profiles.toml"))
    (tmp_path / "records.jsonl").write_text('{"value": "x", "headers": [{"name": "h"}]}\n')
    (tmp_path / "lines.log").write_text("no known format\n")
    (tmp_path / "password").write_text("secret-of-eight\n")
    return tmp_path


@contextmanager
def broker_of(kind: str, folder: Path) -> Iterator[str]:
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with ExitStack() as stack:
        if kind == "kafka":
            kafka = stack.enter_context(ApacheKafka(folder / "kafka", settings=settings))
            yield kafka.bootstrap
        else:
            options = [word for item in settings.items() for word in ("--set", "=".join(item))]
            node = MillstreamNode(folder / "node", "--dev", *options)
            yield stack.enter_context(node).bootstrap


@contextmanager
def open_transaction(bootstrap: str) -> Iterator[None]:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "payments", "log_level": 0}
    )
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce("orders", "x")
    producer.flush(SECONDS_MAX)
    yield


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["millstream", pytest.param("kafka", marks=pytest.mark.java)])
def test_json_has_its_documented_shape(kind: str, folder: Path) -> None:
    problems: dict[str, str] = {}
    with broker_of(kind, folder) as bootstrap, ExitStack() as stack:
        places = {
            "BOOTSTRAP": bootstrap,
            "KAFKA": str(KAFKA_FILES),
            "PARTITION": str(KAFKA_FILES / "mixed-0"),
        }
        for command, arguments in ON_A_NODE:
            if kind == "kafka" and (command in NOT_ON_KAFKA or not talks_to_broker(command)):
                continue
            if command == "txn list":
                stack.enter_context(open_transaction(bootstrap))
            ran = run_millstream(
                *command.split(),
                *[places.get(each, each) for each in arguments],
                "--json",
                bootstrap=bootstrap,
                stdin="x\n",
                seconds_max=SECONDS_MAX,
            )
            failed = ran.errors[-500:] if ran.exit_code and command != "doctor" else None
            if text := failed or problem_of(command, ran.output):
                problems[" ".join([command, *arguments])] = text
    assert problems == {}


def test_a_failure_is_json_on_stderr() -> None:
    for arguments, code in (
        (["topic", "describe", "x", "--json", "-b", "127.0.0.1:1"], 4),
        (["topic", "describe", "x", "--json", "--no-such-option"], 2),
        (["produce", "--json"], 2),
        (["storage", "verify", "/no/such/place", "--json"], 2),
        (["profile", "show", "nobody", "--json"], 2),
    ):
        ran = run_millstream(*arguments)
        assert (ran.exit_code, ran.output) == (code, ""), arguments
        value = json.loads(ran.errors)
        assert mismatch(value, SHAPES["error"], "error") is None
        assert value["error"]["exit_code"] == code


def first_line(*arguments: str) -> str:
    """Of a server, which is then stopped."""
    process = subprocess.Popen(
        [sys.executable, "-m", "millstream", *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        return process.stdout.readline()
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=SECONDS_MAX)
        assert process.returncode == 0, errors


@pytest.mark.slow
def test_servers_print_a_line_when_they_are_ready(folder: Path) -> None:
    listen = ("--listen", "127.0.0.1:0")
    broker = first_line("broker", "--data-dir", "a", *listen, "--console", "127.0.0.1:0")
    dev = first_line("dev", "--port", "0", "--console-port", "0")
    with MillstreamNode(folder / "node", "--dev") as node:
        console = first_line("console", *listen, "-b", node.bootstrap)
        registry = first_line("registry", *listen, "-b", node.bootstrap)
    lines = {"broker": broker, "dev": dev, "console": console, "registry": registry}
    assert {name: problem_of(name, line) for name, line in lines.items()} == dict.fromkeys(lines)


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(600)
def test_commands_of_a_cluster_print_their_shapes(folder: Path) -> None:
    zookeeper = first_line("zookeeper", "--data-dir", "z", "--listen", "127.0.0.1:0")
    assert problem_of("zookeeper", zookeeper) is None
    with MillstreamNode(folder / "alone", "--dev") as alone:
        assert run_millstream("topic", "create", "t", bootstrap=alone.bootstrap).exit_code == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "millstream", "cluster", "start", "--data-dir", "c", "--dev"]
        + ["--json", "--set", "default.replication.factor=2"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert problem_of("cluster start", line) is None
        problems = cluster_problems(json.loads(line), folder)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS_MAX)
    assert problems == {}


# Ends the node that listens on a port; `cluster start` starts it again.
STOP_NODE = "import os, sys; os.kill(int(open(sys.argv[1]).read()), 15)"


def cluster_problems(started: dict[str, str], folder: Path) -> dict[str, str]:
    adopted = ["--data-dir", "alone", "--zookeeper", f"{started['zookeeper']}/adopted"]
    calls = [
        ("topic create", ["orders", "-p", "3", "-r", "2"]),
        ("cluster adopt", adopted),
        ("cluster adopt", [*adopted, "--apply"]),
        ("cluster reassign", ["orders:0", "--to", "2,1", "-y"]),
        ("cluster reassign", ["orders:0", "--to", "1,3", "-y"]),
        ("cluster elect", ["-y"]),
        ("cluster decommission", ["3", "-y"]),
        ("cluster rebalance", ["-y"]),
    ]
    found = problems_of_calls(calls, started["bootstrap"])
    restart = ["--rolling", "--node", "2", "-y", "--command", stop_command(folder)]
    return found | problems_of_calls([("cluster restart", restart)], started["bootstrap"])


def problems_of_calls(calls: list[tuple[str, list[str]]], bootstrap: str) -> dict[str, str]:
    found = {}
    for command, arguments in calls:
        ran = run_millstream(
            *command.split(), *arguments, "--json", bootstrap=bootstrap, seconds_max=300
        )
        problem = ran.errors[-1000:] if ran.exit_code else problem_of(command, ran.output)
        if problem is not None:
            found[command] = problem
    return found


def stop_command(folder: Path) -> str:
    """Of node 2, found by the directory that it runs in."""
    [pid] = [
        int(each.name)
        for each in Path("/proc").iterdir()
        if each.name.isdecimal() and is_node_2(each, folder)
    ]
    (folder / "pid").write_text(str(pid))
    return f"{sys.executable} -c '{STOP_NODE}' {folder / 'pid'}"


def is_node_2(process: Path, folder: Path) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        here = os.readlink(process / "cwd")
    except OSError:
        return False
    return here == str(folder) and b"broker" in words and any(b"c/node-2" in w for w in words)


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(900)
def test_commands_of_a_pipeline_print_their_shapes(folder: Path) -> None:
    skip_if_java_is_left_out()
    today = datetime.now(UTC).date()
    with MillstreamNode(folder / "node", "--dev") as node:
        prepare_pipelines(node.bootstrap)
        calls = [
            ("pipeline run", ["live.toml", "--once"]),
            ("pipeline status", ["live.toml"]),
            ("report daily", ["live.toml", "--date", str(today)]),
            ("report weekly", ["live.toml", "--date", str(today)]),
            ("report monthly", ["live.toml", "--date", str(today)]),
            ("pipeline rebuild", ["reports", "live.toml", "--from", str(today)]),
            ("pipeline backfill", ["old.toml"]),
            ("demo", ["--for", "1", "--rate", "50"]),
        ]
        assert {command for command, _ in calls} == WITH_SPARK
        assert problems_of_calls(calls, node.bootstrap) == {}


def prepare_pipelines(bootstrap: str) -> None:
    """Lines in the topic `logs`, and the files of two pipelines."""
    for words in (
        "topic create logs -c message.timestamp.type=LogAppendTime",
        "loadgen --topic logs -n 200 --fast -q",
        f"pipeline init live.toml --name live -b {bootstrap}",
        f"pipeline init old.toml --name old -b {bootstrap}",
    ):
        ran = run_millstream(*words.split(), bootstrap=bootstrap)
        assert ran.exit_code == 0, ran.errors
    other = Path("old.toml")
    other.write_text(other.read_text().replace("pipeline-data", "old-data"))
