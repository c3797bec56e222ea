"""Users that log in by SCRAM are created, changed, described and deleted by a real client."""

import logging
import time

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from millstream.errors import KafkaCode
from tests.support.raw_client import RawClient
from tests.support.sasl_node import PASSWORD, SCRAM_USER, librdkafka, log_in_scram, sasl_node

MECHANISM = "SCRAM-SHA-256"


def alter(admin: AdminClient, change: object) -> None:
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(20)


def upsertion(user: str, password: str, iterations: int = 4096) -> UserScramCredentialUpsertion:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, iterations)
    return UserScramCredentialUpsertion(user, info, password.encode())


def deletion(user: str) -> UserScramCredentialDeletion:
    return UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)


def code_of(node: str, user: str, password: str) -> int:
    with RawClient(node) as client:
        return log_in_scram(client, user, password).error_code


def test_a_user_lives_from_its_creation_to_its_deletion() -> None:
    with sasl_node() as node:
        admin = AdminClient(librdkafka(node.bootstrap, MECHANISM, SCRAM_USER, PASSWORD))
        failed = KafkaCode.SASL_AUTHENTICATION_FAILED
        assert code_of(node.bootstrap, "new", "one") == failed
        alter(admin, upsertion("new", "one", 8192))
        assert code_of(node.bootstrap, "new", "one") == KafkaCode.NONE
        described = admin.describe_user_scram_credentials(["new"])["new"].result(20)
        (info,) = described.scram_credential_infos
        assert (info.mechanism, info.iterations) == (ScramMechanism.SCRAM_SHA_256, 8192)
        everybody = admin.describe_user_scram_credentials().result(20)
        assert set(everybody) == {SCRAM_USER, "new"}
        with RawClient(node.bootstrap) as connected:
            assert log_in_scram(connected, "new", "one").error_code == 0
            began = time.monotonic()
            alter(admin, upsertion("new", "two"))
            assert connected.is_closed_by_peer()
            assert time.monotonic() - began < 5
        assert code_of(node.bootstrap, "new", "one") == failed
        assert code_of(node.bootstrap, "new", "two") == KafkaCode.NONE
        with RawClient(node.bootstrap) as connected:
            assert log_in_scram(connected, "new", "two").error_code == 0
            alter(admin, deletion("new"))
            assert connected.is_closed_by_peer()
        assert code_of(node.bootstrap, "new", "two") == failed
        # Others have not noticed.
        assert set(admin.describe_user_scram_credentials().result(20)) == {SCRAM_USER}


def test_changes_are_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    with sasl_node() as node, caplog.at_level(logging.INFO, "millstream.audit"):
        admin = AdminClient(librdkafka(node.bootstrap, MECHANISM, SCRAM_USER, PASSWORD))
        alter(admin, upsertion("new", "secret one"))
        alter(admin, deletion("new"))
    audited = [each.getMessage() for each in caplog.records if each.name == "millstream.audit"]
    who = f"User:{SCRAM_USER} from 127.0.0.1: SCRAM credentials of user 'new'"
    assert audited == [f"{who}: {MECHANISM} set", f"{who}: {MECHANISM} deleted"]


def test_what_cannot_be_is_refused_with_kafkas_errors() -> None:
    with sasl_node() as node:
        admin = AdminClient(librdkafka(node.bootstrap, MECHANISM, SCRAM_USER, PASSWORD))
        for change, code in (
            (upsertion("new", "x", 4095), KafkaCode.UNACCEPTABLE_CREDENTIAL),
            (upsertion("new", "x", 16385), KafkaCode.UNACCEPTABLE_CREDENTIAL),
            (deletion("nobody"), KafkaCode.RESOURCE_NOT_FOUND),
        ):
            with pytest.raises(KafkaException) as caught:
                alter(admin, change)
            assert caught.value.args[0].code() == code
        with pytest.raises(KafkaException) as caught:
            admin.describe_user_scram_credentials(["nobody"])["nobody"].result(20)
        assert caught.value.args[0].code() == KafkaCode.RESOURCE_NOT_FOUND


def test_a_user_who_changes_its_own_password_gets_the_reply() -> None:
    with sasl_node() as node:
        admin = AdminClient(librdkafka(node.bootstrap, MECHANISM, SCRAM_USER, PASSWORD))
        alter(admin, upsertion(SCRAM_USER, "other"))
        assert code_of(node.bootstrap, SCRAM_USER, "other") == KafkaCode.NONE
