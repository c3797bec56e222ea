"""The console of three nodes with one down, and of Apache Kafka.

Covers console/app.py, console/reading.py, console/problems.py.
"""

from pathlib import Path

import pytest
from confluent_kafka import Producer

from millstream.console.pages import PAGES
from tests.support.apache_kafka import ApacheKafka
from tests.support.cluster import millstream_cluster, wait_until
from tests.support.console_node import Browser, ConsoleNode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def open_every_page(web: Browser, topic: str) -> None:
    for page in PAGES:
        if "{group" in page.path or "{instance" in page.path:
            continue
        path = page.path.replace("{topic}", topic)
        path = path.replace("{partition}", "0").replace("{offset}", "0")
        answer = web.get(path)
        assert answer.status == 200, (path, answer.text)
        api_path = "/overview" if path == "/" else path
        assert web.get(f"/api/v1{api_path}").status == 200


def produce(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(topic, b"value", key=b"key", partition=0)
    assert producer.flush(60) == 0


def test_a_node_that_is_down_is_a_problem_and_the_rest_is_shown(tmp_path: Path) -> None:
    with millstream_cluster(tmp_path) as cluster:
        cluster.create_topic("replicated", 3)
        produce(cluster.bootstrap, "replicated")
        first = cluster.nodes[1].bootstrap
        with ConsoleNode(bootstrap=first) as alone:
            web = alone.browser
            assert len(web.api("/nodes")["rows"]) == 3
            assert web.api("/overview")["problems"] == []
            cluster.nodes[3].kill()

            def is_noticed() -> bool:
                alone.sample()
                titles = [each["title"] for each in web.api("/overview")["problems"]]
                return "Node 3 is down" in titles and any("under-repl" in each for each in titles)

            wait_until(is_noticed, "the dead node is a problem")
            view = web.api("/nodes")
            assert view["dead"] == [3]
            assert view["troubled_count"] > 0
            assert any(3 in event["isr_before"] for event in view["events"])
            text = web.get("/metrics").text
            assert "kafka_brokers 2" in text
            open_every_page(web, "replicated")
            answer = web.call("/topics/replicated/produce", key="k", value="v", partition=1)
            assert answer.status == 200, answer.text


def retention_ms(web: Browser, topic: str) -> str:
    rows = {row["name"]: row for row in web.api(f"/topics/{topic}/config")["rows"]}
    found: str = rows["retention.ms"]["value"]
    return found


@pytest.mark.java
def test_every_page_and_the_common_changes_on_apache_kafka(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path / "kafka") as kafka, ConsoleNode(bootstrap=kafka.bootstrap) as alone:
        web = alone.browser
        assert web.call("/topics", name="on-kafka", partitions=2).status == 200
        done = web.call("/topics/on-kafka/produce", key="k", value="needle", headers="h: 1")
        assert done.status == 200, done.text
        alone.sample()
        found = web.api("/topics/on-kafka?q=needle")
        assert (found["search"]["hits"], found["rows"][0]["key"]["text"]) == (1, "k")
        assert web.call("/topics/on-kafka/config", name="retention.ms", value="99").status == 200
        # Kafka's controller has it at once, its broker a moment later.
        wait_until(lambda: retention_ms(web, "on-kafka") == "99", "retention.ms is 99")
        moved = web.call("/groups/new-group/reset", to="beginning", only="on-kafka")
        assert moved.status == 200, moved.text
        assert web.api("/groups/new-group")["lag"] == 1
        open_every_page(web, "on-kafka")
        assert web.call("/topics/on-kafka/delete", confirm="on-kafka").status == 200
