"""The contents are Kafka's, so its own tools can read them."""

import json
import uuid

import pytest

from millstream.cluster import znodes
from millstream.cluster.client_entities import ClientEntity
from millstream.cluster.state import BrokerState, Endpoint, PartitionState, TopicState
from millstream.cluster.stores.store import TOP_PATHS, Create, Node
from millstream.security.acl import (
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

TOPIC_ID = uuid.UUID("4f1e22a0-9a2b-4a86-8b5e-6c6b0d2a3c11")


def topic() -> TopicState:
    partitions = [
        PartitionState(leader=1, leader_epoch=4, isr=(1, 2), replicas=(1, 2), version=0),
        PartitionState(leader=2, leader_epoch=0, isr=(2,), replicas=(2, 1), version=0),
    ]
    return TopicState("orders", TOPIC_ID, partitions, {"retention.ms": "5"})


def nodes_of(state: TopicState) -> dict[str, Node]:
    operations = znodes.create_topic(state, controller_epoch=3)
    return {each.path: Node(each.data, 0) for each in operations if isinstance(each, Create)}


def test_a_topic_is_laid_out_as_kafka_does():
    nodes = nodes_of(topic())
    assert json.loads(nodes["/brokers/topics/orders"].data) == {
        "version": 3,
        "topic_id": "Tx4ioJorSoaLXmxrDSo8EQ",
        "partitions": {"0": [1, 2], "1": [2, 1]},
        "adding_replicas": {},
        "removing_replicas": {},
    }
    assert json.loads(nodes["/brokers/topics/orders/partitions/0/state"].data) == {
        "controller_epoch": 3,
        "leader": 1,
        "version": 1,
        "leader_epoch": 4,
        "isr": [1, 2],
    }
    config = json.loads(nodes["/config/topics/orders"].data)
    assert config == {"version": 1, "config": {"retention.ms": "5"}}


def test_a_topic_is_read_back_as_it_was_written():
    nodes = nodes_of(topic())
    below = {path: node for path, node in nodes.items() if path.startswith(znodes.TOPICS + "/")}
    assert znodes.decode_topics(below, nodes) == [topic()]
    without_options = TopicState("orders", TOPIC_ID, topic().partitions, {})
    assert znodes.decode_topics(below, {}) == [without_options]


def test_the_epoch_of_an_unclean_election_is_read_back():
    state = PartitionState(1, 7, (1,), (1, 2), 3, writer_token="w", unclean_epoch=7)
    data = znodes.encode_partition(state, 1, TOPIC_ID)
    entry = znodes.TopicEntry(TOPIC_ID, znodes.encode_uuid(TOPIC_ID), [(1, 2)], {}, {}, 0)
    assert znodes.decode_partition(Node(data, 3), entry, 0) == state


def test_parents_are_created_before_and_deleted_after_their_children():
    created = [operation.path for operation in znodes.create_topic(topic(), controller_epoch=1)]
    deleted = [operation.path for operation in znodes.delete_topic(topic())]
    assert set(created) == set(deleted)
    for order, wanted in ((created, -1), (deleted, 1)):
        for path in order:
            parent = path.rpartition("/")[0]
            if parent in order:
                difference = order.index(parent) - order.index(path)
                assert difference * wanted > 0, path


def test_all_paths_are_below_those_that_are_protected():
    named = [value for name, value in vars(znodes).items() if name.isupper()]
    written = [each for each in named if isinstance(each, str) and each.startswith("/")]
    assert {f"/{path.split('/')[1]}" for path in (*written, *znodes.BASE_PATHS)} == set(TOP_PATHS)


def test_nodes_and_their_addresses_are_read_back():
    endpoints = (Endpoint("PLAINTEXT", "::1", 9092), Endpoint("OUT", "example.org", 1))
    broker = BrokerState(3, endpoints, rack="r1")
    data = znodes.encode_broker(broker, now_ms=5)
    assert znodes.decode_broker(3, Node(data, 0)) == broker
    assert json.loads(data)["endpoints"] == ["PLAINTEXT://::1:9092", "OUT://example.org:1"]


def test_ids_and_blocks_are_read_back():
    assert znodes.decode_cluster_id(Node(znodes.encode_cluster_id("abc"), 0)) == "abc"
    block = range(3000, 4000)
    data = znodes.encode_producer_block(1, block)
    assert json.loads(data)["block_end"] == "3999"
    assert znodes.decode_producer_block(Node(data, 0)) == block
    assert znodes.decode_uuid(znodes.encode_uuid(TOPIC_ID)) == TOPIC_ID
    assert znodes.broker_config_path(None) == "/config/brokers/<default>"


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        (ClientEntity(user="alice"), "/config/users/alice"),
        (ClientEntity(user=""), "/config/users/<default>"),
        (ClientEntity(user="<default>"), "/config/users/%3Cdefault%3E"),
        (ClientEntity(user="CN=a b*~,O=ü"), "/config/users/CN%3Da%20b%2A%7E%2CO%3D%C3%BC"),
        (ClientEntity(user="a", client_id=""), "/config/users/a/clients/<default>"),
        (ClientEntity(user="clients", client_id="."), "/config/users/clients/clients/%2E"),
        (ClientEntity(client_id="a.b-c_d"), "/config/clients/a.b-c_d"),
        (ClientEntity(ip="10.0.0.1"), "/config/ips/10.0.0.1"),
    ],
)
def test_entities_have_kafkas_paths(entity, path):
    assert znodes.entity_config_path(entity) == path
    assert znodes.entity_of_config_path(path) == entity


def test_folders_between_entities_are_no_entities():
    data = znodes.encode_config({"x": "1"})
    assert json.loads(data) == {"version": 1, "config": {"x": "1"}}
    below = {
        "/config/users/a": Node(b"", 0),
        "/config/users/a/clients": Node(b"", 0),
        "/config/users/a/clients/c": Node(data, 0),
    }
    assert znodes.decode_entities(below) == {ClientEntity(user="a", client_id="c"): {"x": "1"}}


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        (ResourcePattern(ResourceType.TOPIC, "a.b_c-d"), "/kafka-acl/Topic/a.b_c-d"),
        (ResourcePattern(ResourceType.TOPIC, "*"), "/kafka-acl/Topic/*"),
        (
            ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"),
            "/kafka-acl/Cluster/kafka-cluster",
        ),
        (
            ResourcePattern(ResourceType.TRANSACTIONAL_ID, "a/b", PatternType.PREFIXED),
            "/kafka-acl-extended/prefixed/TransactionalId/a%2Fb",
        ),
        (ResourcePattern(ResourceType.GROUP, ".."), "/kafka-acl/Group/%2E%2E"),
    ],
)
def test_acls_have_kafkas_paths(pattern, path):
    assert znodes.acl_path(pattern) == path
    assert znodes.pattern_of_acl_path(path) == pattern


def test_acls_have_kafkas_json():
    entries = {
        Entry("User:a", "*", Operation.DESCRIBE_CONFIGS, Permission.ALLOW),
        Entry("User:*", "10.0.0.1", Operation.ALL, Permission.DENY),
    }
    data = znodes.encode_acls(entries)
    first, second = json.loads(data)["acls"]
    assert json.loads(data)["version"] == 1
    assert first == {
        "principal": "User:*",
        "permissionType": "Deny",
        "operation": "All",
        "host": "10.0.0.1",
    }
    assert second["operation"] == "DescribeConfigs"
    assert znodes.decode_acls(Node(data, 0)) == entries
    assert znodes.pattern_of_acl_path("/kafka-acl/Topic") is None
