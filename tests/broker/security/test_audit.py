import logging
from dataclasses import replace

import pytest

from millstream.broker.security.audit import INTERVAL_SECONDS, LINES_PER_INTERVAL, AuditLog, Denial
from millstream.security.acl import Operation, ResourceType
from millstream.wire.apis.create_acls import AclCreation, CreateAclsRequest
from tests.support.named_clients import credulous_broker
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

DENIAL = Denial("User:a", "10.0.0.1", Operation.READ, ResourceType.TOPIC, "t")


def test_a_denial_is_written_once_per_interval(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    audit = AuditLog(lambda: now[0])
    with caplog.at_level(logging.INFO, "millstream.audit"):
        for _ in range(3):
            audit.denied(DENIAL)
        audit.denied(Denial("User:b", "10.0.0.1", Operation.READ, ResourceType.TOPIC, "t"))
        now[0] += INTERVAL_SECONDS
        audit.denied(DENIAL)
    assert [record.getMessage() for record in caplog.records] == [
        "denied User:a from 10.0.0.1: READ on TOPIC 't'",
        "denied User:b from 10.0.0.1: READ on TOPIC 't'",
        "denied User:a from 10.0.0.1: READ on TOPIC 't' (2 more since)",
    ]


def test_a_client_that_invents_names_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    audit = AuditLog(lambda: now[0])
    with caplog.at_level(logging.INFO, "millstream.audit"):
        for number in range(LINES_PER_INTERVAL + 7):
            audit.denied(replace(DENIAL, name=f"t{number}"))
        assert len(caplog.records) == LINES_PER_INTERVAL
        audit.denied(replace(DENIAL, principal="User:b"))
        now[0] += INTERVAL_SECONDS
        audit.denied(DENIAL)
    assert [record.getMessage() for record in caplog.records[LINES_PER_INTERVAL:]] == [
        "denied User:b from 10.0.0.1: READ on TOPIC 't'",
        "7 more denials of User:a from 10.0.0.1",
        "denied User:a from 10.0.0.1: READ on TOPIC 't'",
    ]


def test_of_a_long_name_only_the_beginning_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(lambda: 0.0)
    with caplog.at_level(logging.INFO, "millstream.audit"):
        for number in range(3):
            audit.denied(replace(DENIAL, name="t" * 0x7000 + str(number)))
    assert len(caplog.records) == 1


def test_what_a_client_names_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(lambda: 0.0)
    name = "t\nUser:root from 10.0.0.2: added ACL"
    with caplog.at_level(logging.INFO, "millstream.audit"):
        audit.denied(Denial("User:a", "h", Operation.READ, ResourceType.GROUP, name))
        audit.changed("User:a\nUser:b", "h", "x\ny")
    assert all("\n" not in record.getMessage() for record in caplog.records)


def test_every_change_is_written_though_its_client_has_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever takes turns ends when the client has left.
    monkeypatch.setattr("millstream.broker.requests.turns.FIRST_TURN_SECONDS_MAX", -1)
    creations = [
        AclCreation(
            resource_type=2,
            resource_name=f"topic-{number}",
            resource_pattern_type=3,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        )
        for number in range(300)
    ]
    with credulous_broker() as broker, caplog.at_level(logging.INFO, "millstream.audit"):
        with RawClient(broker.bootstrap, client_id="root") as root:
            # The first request of its kind is not served before its handler is imported.
            root.ask(CreateAclsRequest(creations=creations[:1]), 3)
            root.send(CreateAclsRequest(creations=creations[1:]), 3)
        wait_until(lambda: "topic-299" in caplog.text, "the last change is written")
    assert sum("added ACL" in line for line in caplog.messages) == 300
