"""Who is connected, and the metrics that real clients push."""

import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.console_node import Browser, ConsoleNode
from tests.support.jars import classpath
from tests.support.java_client import JavaClient
from tests.support.otlp import gauge, metrics_data
from tests.support.raw_client import RawClient
from tests.support.telemetry import push_as_new_client, subscribe
from tests.support.tools import require
from tests.support.waiting import wait_until

SECONDS_MAX = 60.0
CLIENT_METRICS_COMMAND = "org.apache.kafka.tools.ClientMetricsCommand"


@pytest.fixture
def raw(console_node: ConsoleNode) -> Iterator[RawClient]:
    """A client of a node with a subscription to everything."""
    with RawClient(console_node.bootstrap) as client:
        subscribe(client, {"metrics": "*", "interval.ms": "300"})
        yield client
        subscribe(client, {"metrics": None, "interval.ms": None})


def reporting(web: Browser, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first client that `is_it` selects and that has pushed metrics."""

    def find() -> dict[str, Any] | None:
        rows = web.api("/clients")["reporting"]
        return next((row for row in rows if is_it(row) and row["metric_count"]), None)

    wait_until(lambda: find() is not None, "the client has pushed metrics")
    found = find()
    assert found is not None
    return found


def test_librdkafka_pushes_its_metrics(web: Browser, raw: RawClient, console_node, topic) -> None:
    name = f"rd-{uuid.uuid4().hex[:8]}"
    producer = Producer(
        {"bootstrap.servers": console_node.bootstrap, "client.id": name, "log_level": 0}
    )
    producer.produce(topic, b"x")
    assert producer.flush(SECONDS_MAX) == 0
    row = reporting(web, lambda one: one["client_id"] == name)
    assert row["software"].startswith("confluent-kafka-python")
    assert (row["interval_ms"], row["wanted"], row["is_connected"]) == (300, ["*"], True)
    view = web.api(f"/clients/{row['instance_id']}")
    names = {one["name"] for one in view["metrics"]}
    assert any(each.startswith("org.apache.kafka.producer.") for each in names), names
    text = web.get(f"/clients/{row['instance_id']}").text
    assert all(each in text for each in names)
    assert name in web.get("/clients").text
    # Its last push is kept after it has left.
    del producer

    def has_left() -> bool:
        rows = web.api("/clients")["reporting"]
        return not any(one["is_connected"] for one in rows if one["client_id"] == name)

    wait_until(has_left, "the producer is shown as gone")
    assert reporting(web, lambda one: one["client_id"] == name)["metric_count"]


@pytest.mark.slow
@pytest.mark.java
def test_java_pushes_its_metrics(web: Browser, raw: RawClient, console_node, topic) -> None:
    name = uuid.uuid4().hex
    with JavaClient(console_node.bootstrap) as java:
        # A producer that stays open: it pushes at every interval, not only when it ends.
        java.call("begin", id=name, transactional_id=name, request_timeout_ms=10_000)
        java.call("send", id=name, topic=topic, values=["eA=="])
        row = reporting(web, lambda one: name in one["client_id"])
        assert row["software"].startswith("apache-kafka-java 4.")
        view = web.api(f"/clients/{row['instance_id']}")
        names = {one["name"] for one in view["metrics"]}
        assert "org.apache.kafka.producer.record.send.total" in names
        assert {one["kind"] for one in view["metrics"]} == {"gauge", "sum"}
        assert not any(one["is_delta"] for one in view["metrics"])
        exposed = web.get("/metrics").text
        assert "# TYPE kafka_client_producer_record_send_total counter\n" in exposed
        assert f'client_instance_id="{row["instance_id"]}"' in exposed
        java.call("commit", id=name)
        java.call("close_producer", id=name)


@pytest.mark.slow
@pytest.mark.java
def test_kafkas_tool_sets_shows_and_deletes_subscriptions(console_node: ConsoleNode) -> None:
    def run(*arguments: str) -> str:
        flags = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", classpath(), CLIENT_METRICS_COMMAND)
        where = ("--bootstrap-server", console_node.bootstrap)
        done = subprocess.run(
            [require("java"), *flags, *where, *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
        return done.stdout + done.stderr

    wanted = ("--metrics", "org.apache.kafka.producer.", "--match", "client_id=a.*")
    run("--alter", "--name", "by-tool", *wanted, "--interval", "5000")
    assert "by-tool" in run("--list")
    shown = run("--describe", "--name", "by-tool")
    assert "metrics=org.apache.kafka.producer." in shown
    assert "interval.ms=5000" in shown
    assert "match=client_id=a.*" in shown
    assert "interval" in run("--alter", "--name", "by-tool", "--interval", "5")
    run("--delete", "--name", "by-tool")
    assert "by-tool" not in run("--list")


def test_metrics_are_found_by_name_and_label(web: Browser, raw: RawClient) -> None:
    metrics = [gauge(f"queue.{number}", number / 3, topic=f"t{number}") for number in range(3)]
    instance = push_as_new_client(raw, metrics_data(*metrics))

    def found(query: str) -> list[str]:
        view = web.api(f"/clients/{instance}?q={query}")
        assert view["count"] == len(view["metrics"])
        return [one["name"] for one in view["metrics"]]

    assert found("") == ["queue.0", "queue.1", "queue.2"]
    assert found("QUEUE.1") == ["queue.1"]
    assert found("t2") == ["queue.2"]
    assert found("nothing") == []
    assert "0.3333" in web.get(f"/clients/{instance}").text
    exposed = web.get("/metrics").text
    assert f'client_instance_id="{instance}",topic="t2"}} 0.66666' in exposed


def test_hostile_metrics_are_text_and_json(web: Browser, raw: RawClient) -> None:
    attack = "<script>alert(1)</script>\x1b[2J"
    bad = [gauge(attack, float(value), **{attack: attack}) for value in ("nan", "inf", "1e300")]
    instance = push_as_new_client(
        raw, metrics_data(*bad, *(gauge(f"m{n}", n) for n in range(6_000)))
    )
    page = web.get(f"/clients/{instance}")
    assert page.status == 200
    assert "<script>alert" not in page.text
    assert "more metrics than a node keeps" in page.text
    view = web.api(f"/clients/{instance}?q=script")
    assert [one["value"] for one in view["metrics"]] == [None, None, 1e300]
    assert json.dumps(view, allow_nan=False)
    assert len(web.api(f"/clients/{instance}")["metrics"]) == 1_000


@pytest.mark.parametrize("instance", ["AAAAAAAAAAAAAAAAAAAAAg", "x", "%C3%A9", "a%20b"])
def test_a_client_that_is_not_known_is_not_found(web: Browser, instance: str) -> None:
    assert web.get(f"/clients/{instance}").status == 404
