import json
import os
import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from orders import Topics
from running import RunningService

ORDER = {"id": 1, "lines": [{"price": 10, "count": 3}, {"price": 5, "count": 2}]}
INVOICE = {"order": 1, "net": 40, "total": 48.0}


def test_an_order_becomes_an_invoice(kafka: Any, service: RunningService, topics: Topics) -> None:
    kafka.topic(topics.orders).produce([("customer-1", json.dumps(ORDER))])
    service.run_until(1)
    [record] = kafka.topic(topics.invoices).wait(count=1)
    assert record.json() == INVOICE
    assert record.key == b"customer-1"
    kafka.group(f"of-{topics.orders}").wait_caught_up(timeout=20)


def test_what_is_not_an_order_goes_to_the_dead_letters(
    kafka: Any, service: RunningService, topics: Topics
) -> None:
    kafka.topic(topics.orders).produce(["not JSON", "{}", json.dumps(ORDER)])
    service.run_until(3)
    broken = kafka.topic(topics.dead_letters).wait(count=2)
    assert sorted(record.text for record in broken) == ["not JSON", "{}"]
    assert all("problem" in dict(record.headers) for record in broken)
    assert [record.json() for record in kafka.topic(topics.invoices).wait(count=1)] == [INVOICE]


def test_a_service_that_starts_again_repeats_nothing(kafka: Any, topics: Topics) -> None:
    orders = kafka.topic(topics.orders)
    for _ in range(2):
        orders.produce([json.dumps(ORDER)] * 5)
        service = RunningService(
            kafka.client_config("confluent"), topics, group=f"of-{topics.orders}"
        )
        service.run_until(5)
        service.close()
    assert len(kafka.topic(topics.invoices).wait(count=10)) == 10


def test_another_process_finds_the_broker(kafka_bootstrap: str, topics: Topics) -> None:
    assert os.environ["KAFKA_BOOTSTRAP_SERVERS"] == kafka_bootstrap
    code = (
        "import os; from confluent_kafka.admin import AdminClient;"
        "admin = AdminClient({'bootstrap.servers': os.environ['KAFKA_BOOTSTRAP_SERVERS']});"
        f"assert {str(topics.orders)!r} in admin.list_topics(timeout=20).topics"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_errors_of_the_broker_are_retried(
    kafka: Any, kafka_faults: Any, service: RunningService, topics: Topics
) -> None:
    fault = kafka_faults.fail(
        "Produce", error="NOT_LEADER_OR_FOLLOWER", times=2, topic=topics.invoices
    )
    kafka.topic(topics.orders).produce([json.dumps(ORDER)])
    service.run_until(1)
    assert len(kafka.topic(topics.invoices).wait(count=1)) == 1
    assert fault.applied == 2


@pytest.mark.millstream(topics={"orders": 1, "invoices": 1, "dead": 1})
def test_a_member_that_is_silent_for_too_long_loses_its_place(kafka: Any, kafka_clock: Any) -> None:
    topics = Topics("orders", "invoices", "dead")
    kafka.topic("orders").produce([json.dumps(ORDER)])
    # It never handles anything, and then it never comes back.
    silent = RunningService(kafka.client_config("confluent"), topics, group="billing")
    silent.run_once(timeout=0.1)
    kafka_clock.advance(minutes=10)
    service = RunningService(kafka.client_config("confluent"), topics, group="billing")
    service.run_until(1)
    service.close()
    silent.close()
    assert len(kafka.topic("invoices").wait(count=1)) == 1


def test_invoices_survive_a_dead_leader(kafka_cluster: Any) -> None:
    topics = Topics("orders", "invoices", "dead")
    for name in ("orders", "invoices", "dead"):
        kafka_cluster.create_topic(name)
    service = RunningService(kafka_cluster.client_config("confluent"), topics, group="billing")
    kafka_cluster.topic("orders").produce([json.dumps(ORDER)] * 5)
    service.run_until(5)
    kafka_cluster.kill(kafka_cluster.leader("invoices", 0))
    kafka_cluster.topic("orders").produce([json.dumps(ORDER)] * 5)
    service.run_until(5)
    service.close()
    assert len(kafka_cluster.topic("invoices").wait(count=10)) == 10


def test_invoices_can_have_a_schema(kafka: Any, schema_registry: str, make_topic: Any) -> None:
    schema = {
        "type": "record",
        "name": "Invoice",
        "fields": [
            {"name": "order", "type": "long"},
            {"name": "net", "type": "double"},
            {"name": "total", "type": "double"},
        ],
    }
    registry = SchemaRegistryClient({"url": schema_registry})
    serialize = AvroSerializer(registry, json.dumps(schema))
    topic = make_topic()
    place = SerializationContext(topic, MessageField.VALUE)
    topic.produce([serialize(INVOICE, place)])
    [record] = topic.wait(count=1)
    assert AvroDeserializer(registry)(record.value, place) == INVOICE
    assert registry.get_versions(f"{topic}-value") == [1]


@pytest.mark.millstream(security="sasl_ssl", topics={"orders": 1, "invoices": 1, "dead": 1})
def test_with_a_login_over_tls(kafka: Any) -> None:
    topics = Topics("orders", "invoices", "dead")
    service = RunningService(kafka.client_config("confluent"), topics, group="billing")
    kafka.topic("orders").produce([json.dumps(ORDER)])
    service.run_until(1)
    service.close()
    assert [record.json() for record in kafka.topic("invoices").wait(count=1)] == [INVOICE]
