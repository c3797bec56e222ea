"""Nodes that speak to each other with TLS and SASL, and what they need for it."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.broker.membership.node_security import node_security
from millstream.client.security import PLAINTEXT
from millstream.config import ConfigError, inter_broker_listener, load_config, parse_listeners
from tests.support.certificates import Certificates
from tests.support.cluster import wait_until
from tests.support.node import MillstreamNode
from tests.support.zookeeper import zookeeper_server

SECONDS_MAX = 60
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="node" password="of-nodes" user_node="of-nodes" user_alice="of-alice";'
)


def security(*sets: str):
    config = load_config(sets=sets)
    return node_security(config, inter_broker_listener(config, parse_listeners(config)))


def test_plaintext_needs_nothing() -> None:
    assert security() is PLAINTEXT


def test_the_listeners_own_options_are_used() -> None:
    found = security(
        "listeners=SASL_SSL://127.0.0.1:0",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        f"listener.name.sasl_ssl.plain.sasl.jaas.config={LOGIN}",
        "listener.name.sasl_ssl.ssl.truststore.location=/ca.pem",
        "ssl.keystore.location=/node.pem",
        "ssl.endpoint.identification.algorithm=",
    )
    assert (found.protocol, found.credentials.mechanism) == ("SASL_SSL", "PLAIN")
    assert (found.credentials.username, found.credentials.password) == ("node", "of-nodes")
    assert (found.truststore.location, found.keystore.location) == ("/ca.pem", "/node.pem")
    assert not found.checks_host_name


def test_a_login_that_is_missing_is_an_error_of_the_start() -> None:
    with pytest.raises(ConfigError, match=r"between nodes, on listener SASL_SSL: .*sasl\.jaas"):
        security("listeners=SASL_SSL://127.0.0.1:0", "sasl.mechanism.inter.broker.protocol=PLAIN")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_nodes_replicate_over_tls(tmp_path: Path, protocol: str) -> None:
    certificates = Certificates(tmp_path / "certificates")
    options = {
        "min.insync.replicas": "2",
        "default.replication.factor": "2",
        "offsets.topic.replication.factor": "2",
        "offsets.topic.num.partitions": "3",
        "security.inter.broker.protocol": protocol,
        "ssl.keystore.location": str(certificates.server),
        "ssl.truststore.location": str(certificates.ca),
        f"listener.name.{protocol.lower()}.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    config = tmp_path / "server.properties"
    config.write_text(f"listener.name.sasl_ssl.plain.sasl.jaas.config={LOGIN}\n")
    alice = str(certificates.issue("alice"))
    client: dict[str, str | int] = {
        "security.protocol": protocol,
        "ssl.ca.location": str(certificates.ca),
        "ssl.certificate.location": alice,
        "ssl.key.location": alice,
    }
    if protocol == "SASL_SSL":
        client |= {
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "of-alice",
        }
    with zookeeper_server(tmp_path / "zookeeper") as zookeeper:
        options["zookeeper.connect"] = zookeeper.address
        nodes = [
            MillstreamNode(
                tmp_path / f"node-{node_id}",
                *(part for pair in options.items() for part in ("--set", "=".join(pair))),
                *("--set", f"node.id={node_id}", "--config", str(config)),
                protocol=protocol,
            )
            for node_id in (1, 2)
        ]
        with nodes[0], nodes[1]:
            client["bootstrap.servers"] = ",".join(node.bootstrap for node in nodes)
            produced = use(client)
            assert produced == [b"value-%d" % number for number in range(50)]
            for node in nodes:
                assert "of-nodes" not in node.log_text


def use(client: dict[str, str | int]) -> list[bytes]:
    """Write with acks=all to both nodes, and read through a group."""
    admin = AdminClient(client)
    wait_until(lambda: len(admin.list_topics(timeout=20).brokers) == 2, "both nodes are there")
    for created in admin.create_topics([NewTopic("replicated", 2, 2)]).values():
        created.result(SECONDS_MAX)
    producer = Producer({**client, "acks": "all"})
    for number in range(50):
        producer.produce("replicated", b"value-%d" % number, partition=number % 2)
    assert producer.flush(SECONDS_MAX) == 0
    consumer = Consumer({**client, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["replicated"])
    found = []
    try:
        while len(found) < 50:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            assert message.error() is None
            found.append(message.value())
    finally:
        consumer.close()
    return sorted(found, key=lambda value: int(value.split(b"-")[1]))
