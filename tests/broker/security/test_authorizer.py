from dataclasses import dataclass

import pytest

from millstream.broker.security.authorizer import (
    AclAuthorizer,
    configured_authorizer,
    host_of,
    operations_of,
)
from millstream.cluster.acls import StoredAcls
from millstream.config import load_config
from millstream.errors import StartError
from millstream.model import ANONYMOUS, Principal
from millstream.security.acl import Entry, Operation, Permission, ResourcePattern, ResourceType
from millstream.security.authorization import Client, Rules

TOPIC = ResourceType.TOPIC


@dataclass
class Asker:
    principal: Principal = ANONYMOUS
    address: str = "::ffff:10.0.0.1"
    proved_node_id: int = -1


def with_acl(host: str) -> AclAuthorizer:
    acls = StoredAcls()
    entry = Entry(ANONYMOUS, host, Operation.READ, Permission.ALLOW)
    acls.apply({ResourcePattern(TOPIC, "t"): frozenset({entry})})
    return AclAuthorizer(acls, Rules())


def test_the_host_counts_only_where_an_acl_names_one() -> None:
    assert with_acl("*").client_of(Asker()) == Client(ANONYMOUS)
    authorizer = with_acl("10.0.0.0/24")
    client = authorizer.client_of(Asker())
    assert client == Client(ANONYMOUS, "10.0.0.1")
    assert authorizer.is_allowed(client, Operation.READ, TOPIC, "t")
    other = authorizer.client_of(Asker(address="10.0.1.1"))
    assert not authorizer.is_allowed(other, Operation.READ, TOPIC, "t")


def test_a_node_may_act_as_one_and_nothing_else() -> None:
    authorizer = with_acl("*")
    node = authorizer.client_of(Asker(Principal("User:n"), proved_node_id=1))
    cluster = ResourceType.CLUSTER
    assert authorizer.is_allowed(node, Operation.CLUSTER_ACTION, cluster, "kafka-cluster")
    assert not authorizer.is_allowed(node, Operation.ALTER, cluster, "kafka-cluster")
    assert not authorizer.is_allowed(node, Operation.READ, TOPIC, "t")


def test_operations_of_a_client() -> None:
    authorizer = with_acl("*")
    expected = 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert operations_of(authorizer, Client(ANONYMOUS), TOPIC, "t") == expected
    assert operations_of(authorizer, Client(ANONYMOUS), TOPIC, "u") == 0


def test_addresses_in_one_form() -> None:
    assert host_of("[::1]") == "::1"
    assert host_of("::ffff:127.0.0.1") == "127.0.0.1"
    assert host_of("elsewhere") == "elsewhere"


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "kafka.security.authorizer.AclAuthorizer",
    ],
)
def test_kafkas_names_turn_it_on(name: str) -> None:
    config = load_config(sets=[f"authorizer.class.name={name}", "super.users=User:a;User:b"])
    found = configured_authorizer(config, StoredAcls())
    assert found is not None
    for principal, is_super in (("User:a", True), ("User:b", True), ("User:c", False)):
        client = Client(Principal(principal))
        assert found.is_allowed(client, Operation.READ, TOPIC, "t") is is_super


def test_without_a_name_there_is_none() -> None:
    assert configured_authorizer(load_config(), StoredAcls()) is None


@pytest.mark.parametrize(
    ("setting", "problem"),
    [("authorizer.class.name=com.example.Own", "Java classes"), ("super.users=a", "super.users")],
)
def test_what_cannot_be_stops_the_start(setting: str, problem: str) -> None:
    name = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"
    with pytest.raises(StartError, match=problem):
        configured_authorizer(load_config(sets=[name, setting]), StoredAcls())
