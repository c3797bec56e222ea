"""What a stranger can and cannot do on a SASL listener, byte by byte."""

import contextlib
import struct
import time
from collections.abc import Iterator

import pytest

from millstream.broker.requests.routes import served_apis
from millstream.broker.security import authentication
from millstream.errors import KafkaCode
from millstream.wire.apis.api_versions import ApiVersionsRequest
from millstream.wire.apis.metadata import MetadataRequest
from millstream.wire.apis.sasl_authenticate import SaslAuthenticateRequest
from millstream.wire.apis.sasl_handshake import SaslHandshakeRequest
from millstream.wire.message import Api
from tests.support.broker import Broker
from tests.support.raw_client import RawClient
from tests.support.sasl_node import (
    PASSWORD,
    PLAIN_USER,
    SCRAM_USER,
    choose,
    log_in_plain,
    log_in_scram,
    sasl_node,
    scram_final,
    step,
)

METADATA = MetadataRequest(
    topics=[], allow_auto_topic_creation=False, include_topic_authorized_operations=False
)
SHA_256 = "SCRAM-SHA-256"


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with sasl_node() as running:
        yield running


@pytest.fixture
def client(node: Broker) -> Iterator[RawClient]:
    with RawClient(node.bootstrap) as connected:
        yield connected


def is_served(client: RawClient) -> bool:
    try:
        return len(client.ask(METADATA, 12).brokers) == 1
    except ConnectionError:
        return False


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_login_opens_the_connection(client: RawClient, mechanism: str) -> None:
    answer = log_in_scram(client, SCRAM_USER, PASSWORD, mechanism)
    assert (answer.error_code, answer.session_lifetime_ms) == (KafkaCode.NONE, 0)
    assert bytes(answer.auth_bytes).startswith(b"v=")
    assert is_served(client)
    assert is_served(client)


def test_a_plain_login_opens_the_connection(client: RawClient) -> None:
    assert log_in_plain(client, PLAIN_USER, PASSWORD).error_code == KafkaCode.NONE
    assert is_served(client)


FOR_STRANGERS = ("api_versions", "sasl_handshake", "sasl_authenticate")


@pytest.mark.parametrize(
    "api", [api for api in served_apis() if api.name not in FOR_STRANGERS], ids=str
)
def test_no_other_request_is_answered_before(node: Broker, api: Api) -> None:
    with RawClient(node.bootstrap) as client:
        # A header, and zeros enough for any body.
        client.send_frame(struct.pack(">hhih", api.key, api.max_version, 7, -1) + bytes(64))
        assert client.is_closed_by_peer()


@pytest.mark.parametrize("mechanism", [None, SHA_256])
def test_nor_in_the_middle_of_a_login(node: Broker, mechanism: str | None) -> None:
    with RawClient(node.bootstrap) as client:
        if mechanism is not None:
            assert choose(client, mechanism) == 0
            assert step(client, b"n,,n=sarah,r=fyko").error_code == 0
        assert not is_served(client)


def test_what_is_sent_ahead_of_a_failed_login_is_not_answered(client: RawClient) -> None:
    assert choose(client, "PLAIN") == 0
    client.send(SaslAuthenticateRequest(auth_bytes=b"\0paul\0wrong"), 2)
    client.send(METADATA, 12)
    with contextlib.suppress(ConnectionError):
        answer = client.receive(SaslAuthenticateRequest, 2)
        assert answer.error_code == KafkaCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed_by_peer()


def test_versions_may_be_asked_first(client: RawClient) -> None:
    answer = client.ask(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3
    )
    listed = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert listed[17] == (0, 1)
    assert listed[36] == (0, 2)
    assert log_in_scram(client, SCRAM_USER, PASSWORD).error_code == 0


def test_a_failure_is_delayed_answered_and_ends_the_connection(client: RawClient) -> None:
    began = time.monotonic()
    answer = log_in_scram(client, SCRAM_USER, PASSWORD[:-1] + "\x7f")
    assert time.monotonic() - began >= 0.1
    assert answer.error_code == KafkaCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: invalid credentials"
    assert client.is_closed_by_peer()


@pytest.mark.parametrize("user", [SCRAM_USER, "nobody"])
def test_an_unknown_user_cannot_be_told_from_a_known_one(node: Broker, user: str) -> None:
    salts = []
    for _ in range(2):
        with RawClient(node.bootstrap) as client:
            assert choose(client, SHA_256) == 0
            bare = f"n={user},r=fyko".encode()
            first = bytes(step(client, b"n,," + bare).auth_bytes)
            _, salt, iterations = first.split(b",")
            assert (len(salt), iterations) == (len("s=") + 32, b"i=4096")
            salts.append(salt)
            answer = step(client, scram_final(bare, first, "wrong", SHA_256))
            assert answer.error_message == "Authentication failed: invalid credentials"
    assert salts[0] == salts[1]


def test_a_nonce_that_was_altered_fails(client: RawClient) -> None:
    assert choose(client, SHA_256) == 0
    bare = f"n={SCRAM_USER},r=fyko".encode()
    first = bytes(step(client, b"n,," + bare).auth_bytes)
    final = scram_final(bare, first, PASSWORD, SHA_256).replace(b"r=fyko", b"r=fykO")
    assert step(client, final).error_code == KafkaCode.SASL_AUTHENTICATION_FAILED


def test_a_final_message_that_was_recorded_is_worth_nothing(node: Broker) -> None:
    bare = f"n={SCRAM_USER},r=fyko".encode()
    with RawClient(node.bootstrap) as first:
        assert choose(first, SHA_256) == 0
        recorded = scram_final(
            bare, bytes(step(first, b"n,," + bare).auth_bytes), PASSWORD, SHA_256
        )
        assert step(first, recorded).error_code == 0
    with RawClient(node.bootstrap) as second:
        assert choose(second, SHA_256) == 0
        assert step(second, b"n,," + bare).error_code == 0
        assert step(second, recorded).error_code == KafkaCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [(SHA_256, b"n,a=admin,n=sarah,r=fyko"), ("PLAIN", f"admin\0paul\0{PASSWORD}".encode())],
    # Every process of the tests has another password.
    ids=[SHA_256, "PLAIN"],
)
def test_nobody_may_act_as_another(client: RawClient, mechanism: str, message: bytes) -> None:
    assert choose(client, mechanism) == 0
    answer = step(client, message)
    assert answer.error_code == KafkaCode.SASL_AUTHENTICATION_FAILED
    assert "authorization id" in answer.error_message
    assert client.is_closed_by_peer()


def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are(
    client: RawClient,
) -> None:
    answer = client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert answer.error_code == KafkaCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert client.is_closed_by_peer()


def test_the_order_of_the_requests_counts(node: Broker) -> None:
    with RawClient(node.bootstrap) as client:
        assert step(client, b"\0paul\0x").error_code == KafkaCode.ILLEGAL_SASL_STATE
        assert client.is_closed_by_peer()
    with RawClient(node.bootstrap) as client:
        assert choose(client, "PLAIN") == 0
        assert choose(client, "PLAIN") == KafkaCode.ILLEGAL_SASL_STATE
        assert client.is_closed_by_peer()


def test_frames_are_small_before_a_login_and_may_be_large_after(node: Broker) -> None:
    with RawClient(node.bootstrap) as client:
        client.sock.sendall(struct.pack(">i", 524_289))
        assert client.is_closed_by_peer()
    with RawClient(node.bootstrap) as client:
        assert log_in_plain(client, PLAIN_USER, PASSWORD).error_code == 0
        client.send_frame(struct.pack(">hhih", 18, 0, 9, -1) + bytes(600_000))
        assert client.receive_frame()[:4] == struct.pack(">i", 9)


def test_after_the_old_handshake_messages_come_bare(client: RawClient) -> None:
    assert client.ask(SaslHandshakeRequest(mechanism=SHA_256), 0).error_code == 0
    bare = b"n=sarah,r=fyko"
    client.send_frame(b"n,," + bare)
    client.send_frame(scram_final(bare, client.receive_frame(), PASSWORD, SHA_256))
    assert client.receive_frame().startswith(b"v=")
    assert client.ask(MetadataRequest(topics=[]), 9).brokers


def test_a_bare_message_that_is_wrong_ends_the_connection(client: RawClient) -> None:
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == 0
    client.send_frame(b"\0paul\0wrong password")
    assert client.is_closed_by_peer()


def test_who_does_not_finish_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "AUTHENTICATION_SECONDS_MAX", 0.5)
    with sasl_node() as node, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(RawClient(node.bootstrap)) for _ in range(50)]
        half = stack.enter_context(RawClient(node.bootstrap))
        assert choose(half, SHA_256) == 0
        assert step(half, b"n,,n=sarah,r=fyko").error_code == 0
        slow = stack.enter_context(RawClient(node.bootstrap))
        slow.sock.sendall(b"\0\0\1\0")
        done = stack.enter_context(RawClient(node.bootstrap))
        assert log_in_scram(done, SCRAM_USER, PASSWORD).error_code == 0
        assert all(client.is_closed_by_peer() for client in silent)
        assert half.is_closed_by_peer()
        assert slow.is_closed_by_peer()
        assert is_served(done)


def test_a_session_expires_unless_the_client_logs_in_again() -> None:
    with (
        sasl_node(connections__max__reauth__ms="1500") as node,
        RawClient(node.bootstrap) as client,
    ):
        assert log_in_scram(client, SCRAM_USER, PASSWORD).session_lifetime_ms == 1500
        assert is_served(client)
        assert log_in_scram(client, SCRAM_USER, PASSWORD).session_lifetime_ms == 1500
        time.sleep(1.6)
        # A late client may still do that, and nothing else.
        assert log_in_scram(client, SCRAM_USER, PASSWORD).error_code == 0
        assert is_served(client)
        time.sleep(1.6)
        assert not is_served(client)


def test_a_session_keeps_its_mechanism_and_its_user() -> None:
    with sasl_node(connections__max__reauth__ms="60000") as node:
        with RawClient(node.bootstrap) as client:
            assert log_in_scram(client, SCRAM_USER, PASSWORD).error_code == 0
            assert choose(client, "PLAIN") == KafkaCode.ILLEGAL_SASL_STATE
            assert client.is_closed_by_peer()
        with RawClient(node.bootstrap) as client:
            assert log_in_plain(client, PLAIN_USER, PASSWORD).error_code == 0
            answer = log_in_plain(client, SCRAM_USER, PASSWORD)
            assert answer.error_code == KafkaCode.SASL_AUTHENTICATION_FAILED
            assert client.is_closed_by_peer()


def test_a_listener_without_sasl_has_none() -> None:
    with Broker() as node, RawClient(node.bootstrap) as client:
        assert choose(client, "PLAIN") == KafkaCode.ILLEGAL_SASL_STATE
        assert step(client, b"").error_code == KafkaCode.ILLEGAL_SASL_STATE
        assert is_served(client)
