"""`millstream acl` on a node with an authorizer."""

import json
from collections.abc import Iterator

import pytest

from tests.support.broker import Broker
from tests.support.command_line import Ran, run_millstream

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with Broker(settings=settings) as running:
        yield running


def acl(broker: Broker, *arguments: str) -> Ran:
    return run_millstream("acl", *arguments, "-b", broker.bootstrap)


def test_acls_are_added_listed_and_deleted(broker: Broker) -> None:
    ann = ("--principal", "User:ann")
    added = acl(broker, "add", *ann, "--topic", "logs", "--operation", "read", "--operation", "all")
    assert (added.exit_code, added.errors) == (0, "added 2 ACLs\n")
    denied = acl(
        *(broker, "add", *ann, "--group", "g-", "--prefix", "--deny"),
        *("--operation", "describe-configs", "--host", "10.0.0.0/8"),
    )
    assert denied.exit_code == 0
    listed = json.loads(acl(broker, "list", "--json").output)
    assert len(listed) == 3
    assert listed[0] == {
        "type": "group",
        "name": "g-",
        "pattern": "prefixed",
        "principal": "User:ann",
        "host": "10.0.0.0/8",
        "operation": "describe-configs",
        "permission": "deny",
    }
    applying = acl(broker, "list", "--group", "g-1").output
    assert "g-" in applying
    assert "logs" not in applying
    assert acl(broker, "delete", "-y", "--topic", "logs").errors == "deleted 2 ACLs\n"
    assert acl(broker, "delete", "-y", "--topic", "logs").exit_code == 1
    assert acl(broker, "delete", "-y", *ann).errors == "deleted 1 ACLs\n"


def test_mistakes_are_told(broker: Broker) -> None:
    user = ("--principal", "User:ann", "--operation", "read")
    assert acl(broker, "add", *user).exit_code == 2
    assert acl(broker, "add", *user, "--topic", "a", "--cluster").exit_code == 2
    assert acl(broker, "delete", "-y").exit_code == 2
    wrong = acl(broker, "add", "--principal", "ann", "--operation", "read", "--topic", "a")
    assert wrong.exit_code == 1
    assert "User:name" in wrong.errors


def test_without_an_authorizer_the_node_says_so() -> None:
    with Broker() as plain:
        ran = acl(plain, "list")
    assert ran.exit_code == 1
    assert "authorizer.class.name" in ran.errors
