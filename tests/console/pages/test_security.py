"""Covers console/pages/security.py, console/pages/transactions.py."""

from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support.console_node import Browser, ConsoleNode


def test_without_an_authorizer_the_page_says_so(web: Browser) -> None:
    assert "no authorizer" in " ".join(web.api("/security")["notes"])
    assert web.get("/security").status == 200


def test_users_acls_and_quotas_are_listed(tmp_path: Path) -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with ConsoleNode(tmp_path, settings=settings) as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        binding = AclBinding(
            ResourceType.TOPIC,
            "orders",
            ResourcePatternType.PREFIXED,
            "User:anna",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        [made] = admin.create_acls([binding]).values()
        made.result(30)
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsertion = UserScramCredentialUpsertion("anna", credential, b"secret", b"salt")
        [altered] = admin.alter_user_scram_credentials([upsertion]).values()
        altered.result(30)
        view = node.browser.api("/security")
        [acl] = view["acls"]
        assert (acl["principal"], acl["operation"], acl["pattern"]) == (
            "User:anna",
            "read",
            "prefixed",
        )
        [user] = view["users"]
        assert (user["name"], user["mechanisms"]) == ("anna", ["SCRAM-SHA-512, 4,096 iterations"])
        text = node.browser.get("/security").text
        assert "secret" not in text
        assert "orders" in text


def test_an_open_transaction_is_listed_with_its_partitions(
    console_node: ConsoleNode, web: Browser, topic: str
) -> None:
    name = f"txn-{topic}"
    producer = Producer({"bootstrap.servers": console_node.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    producer.flush(60)
    [row] = [each for each in web.api("/transactions")["rows"] if each["transactional_id"] == name]
    assert (row["state"], row["partitions"]) == ("Ongoing", [f"{topic}-1"])
    assert row["started_ms"] > 0
    assert name in web.get("/transactions").text
    producer.abort_transaction(60)
