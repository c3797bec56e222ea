"""`millstream topic alter`, `topic add-partitions` and `node config`, on a node and on Kafka.

Covers cli/topic_alter.py, cli/node.py, cli/cluster_health.py, cli/cluster_elect.py,
cli/cluster_reassign.py, cli/cluster_rebalance.py, cli/cluster_restart.py.
"""

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.cli.failure import ExitCode
from tests.support.apache_kafka import ApacheKafka
from tests.support.broker import Broker
from tests.support.command_line import Ran, run_millstream


@pytest.fixture(
    scope="module", params=["millstream", pytest.param("kafka", marks=pytest.mark.java)]
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "millstream":
        with Broker() as broker:
            yield broker.bootstrap
    else:
        with ApacheKafka(tmp_path_factory.mktemp("kafka")) as kafka:
            yield kafka.bootstrap


pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def no_memory_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def topic(server: str) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    ran(server, "topic", "create", name, "-p", "1", "-r", "1")
    return name


def ran(server: str, *words: str, code: int = 0) -> Ran:
    done = run_millstream(*words, bootstrap=server)
    assert done.exit_code == code, (words, done.output, done.errors)
    return done


def test_options_of_a_topic_are_set_and_deleted(server: str, topic: str) -> None:
    ran(server, "topic", "alter", topic, "-c", "retention.ms=123456", "-y")
    assert "retention.ms=123456" in ran(server, "topic", "describe", topic).output
    ran(server, "topic", "alter", topic, "-d", "retention.ms", "-y")
    assert "retention.ms" not in ran(server, "topic", "describe", topic).output
    assert (
        "retention.ms"
        in ran(server, "topic", "alter", topic, "-c", "retention.ms=soon", code=1).errors
    )
    missing = ran(server, "topic", "alter", "missing", "-c", "retention.ms=1", code=1)
    assert "does not exist" in missing.errors
    ran(server, "topic", "alter", topic, code=2)


def test_a_change_shows_its_plan_and_asks(server: str, topic: str) -> None:
    change = ("topic", "alter", topic, "-c", "retention.ms=123456", "-d", "segment.bytes")
    asked = ran(server, *change, code=1)
    assert re.search(r"retention\.ms +604800000 +123456", asked.output), asked.output
    assert re.search(r"segment\.bytes +1073741824 +\(not set here\)", asked.output), asked.output
    assert "requires -y" in asked.errors
    assert "123456" not in ran(server, "topic", "describe", topic).output, "nothing was changed"
    ran(server, *change, "--yes")
    assert "retention.ms=123456" in ran(server, "topic", "describe", topic).output


def test_a_topic_grows(server: str, topic: str) -> None:
    grown = ran(server, "topic", "add-partitions", topic, "3", "-y")
    assert re.search(rf"{topic} +1 +3 +2 +1\n", grown.output), grown.output
    described = json.loads(ran(server, "topic", "describe", topic, "--json").output)
    assert len(described["partitions"]) == 3
    assert "already" in ran(server, "topic", "add-partitions", topic, "3", "-y", code=1).errors
    asked = ran(server, "topic", "add-partitions", topic, "5", code=1)
    assert "Keys may go to other partitions than before" in asked.output
    assert "requires -y" in asked.errors
    as_json = ran(server, "topic", "add-partitions", topic, "4", "-y", "--json")
    assert json.loads(as_json.output) == {"name": topic, "partitions": 4}


def test_options_of_a_node_are_changed_while_it_runs(server: str) -> None:
    nodes = json.loads(ran(server, "cluster", "describe", "--json").output)["nodes"]
    node = str(nodes[0]["id"])
    name = "log.retention.ms"
    planned = ran(server, "node", "config", node, "-c", f"{name}=7200000", code=1)
    assert re.search(rf"{name} +\S+ +7200000", planned.output), planned.output
    assert "requires -y" in planned.errors
    ran(server, "node", "config", node, "-c", f"{name}=7200000", "-y")
    rows = json.loads(ran(server, "node", "config", node, "--json").output)
    assert {"name": name, "value": "7200000", "source": "node"} in rows
    ran(server, "node", "config", node, "-d", name, "-y")
    rows = json.loads(ran(server, "node", "config", node, "--json").output)
    assert name not in [row["name"] for row in rows if row["source"] == "node"]
    assert "is not alive" in ran(server, "node", "config", "77", code=1).errors
    ran(server, "node", "config", code=2)


def test_a_secret_of_a_node_does_not_stand_in_the_command(server: str, tmp_path: Path) -> None:
    setting = ("node", "config", "--all", "-y", "-c")
    told = ran(server, *setting, "ssl.key.password=hush", code=2)
    assert "everybody on this machine can read a command line" in told.errors
    assert "hush" not in told.errors + told.output
    missing = ran(server, *setting, f"ssl.key.password=${{file:{tmp_path}/none}}", code=2)
    assert "No such file" in missing.errors


def test_a_single_node_is_healthy_and_has_nothing_to_move(
    server: str, topic: str, tmp_path: Path
) -> None:
    assert "healthy: 1 node" in ran(server, "cluster", "health").output
    assert "no partition needs an election" in ran(server, "cluster", "elect").errors
    assert "about equal" in ran(server, "cluster", "rebalance", "-y").errors
    nodes = json.loads(ran(server, "cluster", "describe", "--json").output)["nodes"]
    node = nodes[0]["id"]
    plan = tmp_path / "plan.json"
    rows = [{"topic": topic, "partition": 0, "replicas": [node]}]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    assert "there already" in ran(server, "cluster", "reassign", "--file", str(plan)).errors
    assert "nothing is moving" in ran(server, "cluster", "reassign", "--cancel").errors
    alone = ran(server, "cluster", "decommission", str(node), "-y", code=1)
    assert "only 0 nodes stay" in alone.errors


def test_of_a_node_that_has_left_nothing_is_left_to_move(server: str) -> None:
    told = ran(server, "cluster", "decommission", "99").errors
    assert "node 99 has no replicas and is not alive: nothing is left to do. Alive are" in told
    assert json.loads(ran(server, "cluster", "decommission", "99", "--json").output) == []


def test_a_node_that_goes_on_after_the_restart_is_not_waited_for_longer_than_wanted(
    server: str,
) -> None:
    restart = ("cluster", "restart", "--rolling", "-y", "--command", "true {node}", "--wait", "1")
    told = ran(server, *restart, code=ExitCode.TIMEOUT).errors
    assert "still runs 1 s after the command" in told
    assert "run the same command again" in told
