"""The fixtures, as another project's tests see them."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.broker import Broker

_USER_TESTS = """
import os
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

seen = []

def topics(bootstrap):
    return AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics

@pytest.fixture(scope="module")
def module_address(kafka, kafka_bootstrap):
    assert kafka.bootstrap == kafka_bootstrap
    return kafka_bootstrap

def test_first(kafka_bootstrap, make_topic):
    topic = make_topic(partitions=3)
    assert len(topics(kafka_bootstrap)[topic].partitions) == 3
    seen.append((kafka_bootstrap, topic))

def test_second(kafka, kafka_bootstrap, make_topic):
    [(bootstrap, old_topic)] = seen
    assert kafka.bootstrap == kafka_bootstrap == bootstrap == os.environ["KAFKA_BOOTSTRAP_SERVERS"]
    assert make_topic() != old_topic
    assert old_topic not in topics(kafka_bootstrap)

def test_in_a_wider_scope(module_address, kafka):
    assert module_address == kafka.bootstrap

def test_a_topic_that_the_test_deletes(kafka, make_topic):
    kafka.delete_topic(make_topic())

def test_größe_in_名前(make_topic):
    topic = make_topic()
    topic.produce(["x"])
    assert [record.text for record in topic.wait(1)] == ["x"]
"""

_OF_MILLSTREAM = """
import pytest

@pytest.mark.millstream(config={"num.partitions": 7}, security="sasl_plaintext", topics={"mine": 2})
def test_own_broker(kafka):
    assert kafka.topic("mine").end_offsets() == {0: 0, 1: 0}
    assert kafka.client_config()["security.protocol"] == "SASL_PLAINTEXT"

def test_shared_again(kafka):
    assert "mine" not in kafka.topic_names()

def test_faults(kafka, kafka_faults, make_topic):
    topic = make_topic()
    kafka_faults.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1)
    topic.produce(["x"])
    assert kafka_faults.rules[0].applied == 1

def test_faults_are_cleared(kafka_faults):
    assert kafka_faults.rules == []

def test_clock(kafka, kafka_clock):
    kafka_clock.freeze("2026-01-01T00:00Z")
    assert kafka.clock.now_ms() == 1767225600000
"""


_AFTERWARDS = """
def test_clock(kafka_clock):
    kafka_clock.freeze("2026-01-01T00:00Z")

def test_time_goes_on_elsewhere(kafka, make_topic):
    assert kafka.clock.now_ms() > 1767225600000
    make_topic().produce(["x"])
    kafka.stop()

def test_a_broker_that_a_test_stopped_is_back(kafka, make_topic):
    make_topic().produce(["x"])
"""

_OF_A_CLUSTER = """
import pytest

@pytest.fixture(scope="module")
def orders(kafka_cluster):
    return kafka_cluster.create_topic("orders")

def test_failover(kafka_cluster, orders):
    orders.produce(["x"])
    kafka_cluster.kill(kafka_cluster.leader("orders", 0))
    assert [record.text for record in orders.wait(1, timeout=60)] == ["x"]

def test_all_are_back(kafka_cluster, orders):
    assert kafka_cluster.running == [1, 2, 3]
    assert sorted(kafka_cluster.in_sync("orders", 0)) == [1, 2, 3]

def test_a_topic_of_its_own(kafka_cluster, make_topic):
    topic = make_topic(partitions=2)
    topic.produce(["x"])
    assert len(kafka_cluster.in_sync(topic, 1)) == 3
    kafka_cluster.create_topic("by-the-test")
    kafka_cluster.kill(1)

def test_only_topics_of_wider_fixtures_are_left(kafka_cluster):
    left = [name for name in kafka_cluster.topic_names() if not name.startswith("__")]
    assert left == ["orders"]

@pytest.mark.millstream(brokers=2, config={"min.insync.replicas": 2}, isolated=True)
def test_own_cluster(kafka, make_topic):
    topic = make_topic()
    assert kafka.running == [1, 2]
    assert sorted(kafka.in_sync(topic, 0)) == [1, 2]
"""


def run_pytest(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_tests_share_a_broker_and_get_topics_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(_USER_TESTS)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_a_marker_gives_a_broker_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(_OF_MILLSTREAM)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_what_a_test_does_to_time_and_to_the_broker_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(_AFTERWARDS)
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_a_cluster_is_whole_again_after_each_test(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(_OF_A_CLUSTER)
    (tmp_path / "test_user_later.py").write_text(
        "def test_topics_of_a_fixture_end_with_it(kafka_cluster):\n"
        "    assert 'orders' not in kafka_cluster.topic_names()\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def test_the_same_tests_on_another_kafka(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(_USER_TESTS + _OF_MILLSTREAM.partition("\n\n")[2])
    with Broker() as other:
        done = run_pytest(tmp_path, "--millstream-external", other.bootstrap)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed, 4 skipped" in done.stdout
    assert "--millstream-external" in done.stdout


def test_a_marker_with_a_mistake_is_explained(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(
        "import pytest\n\n@pytest.mark.millstream(broker=3)\ndef test(kafka):\n    pass\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode != 0
    assert "the marker millstream takes settings, config, security" in done.stdout


def test_a_failed_test_shows_what_the_broker_knows(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(
        "def test_it(kafka, make_topic):\n"
        "    make_topic(partitions=2).produce(['x'])\n"
        "    assert False\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 1
    assert "topics; end offsets by partition:" in done.stdout
    assert "test-it-" in done.stdout
    assert "Produce" in done.stdout


def test_data_is_kept_and_requests_are_traced(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(
        "def test_it(make_topic):\n    make_topic().produce(['x'])\n"
    )
    done = run_pytest(tmp_path, "--millstream-keep", "--millstream-trace", "trace.jsonl")
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"kept its data in (\S+)", done.stdout)
    assert found is not None
    kept = Path(found[1])
    assert list(kept.glob("broker-*/test-it-*/*.log"))
    shutil.rmtree(kept)
    traced = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert {one["test"] for one in traced} == {"test_user.py::test_it"}
    [produced] = [one for one in traced if one["api"] == "Produce"]
    assert produced["latency_ms"] > 0
    assert produced["error"] is None
