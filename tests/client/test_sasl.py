"""A client's logins, against the server's side and against servers that are not what they seem."""

import base64
from pathlib import Path

import pytest

from millstream.client.sasl import (
    ITERATIONS_ACCEPTED_MAX,
    Credentials,
    LoginRefused,
    log_in,
    read_credentials,
)
from millstream.security.sasl.oauthbearer import read_initial
from millstream.security.sasl.plain import PlainLogin, read_plain
from millstream.security.sasl.scram import ScramExchange, new_credential, read_client_first
from millstream.wire.apis.sasl_authenticate import SaslAuthenticateResponse
from millstream.wire.apis.sasl_handshake import SaslHandshakeResponse

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b"'


def answer(auth_bytes: bytes = b"", error: str | None = None) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=58 if error else 0, error_message=error, auth_bytes=auth_bytes
    )


class Conversation:
    """The handshake is done; the client's next message is `message`."""

    def __init__(self, credentials: Credentials) -> None:
        self._steps = log_in(credentials)
        assert next(self._steps).mechanism == credentials.mechanism
        handshake = SaslHandshakeResponse(error_code=0, mechanisms=[])
        self.message = bytes(self._steps.send(handshake).auth_bytes)

    def reply(self, auth_bytes: bytes) -> None:
        self.message = bytes(self._steps.send(answer(auth_bytes)).auth_bytes)

    def ends(self, auth_bytes: bytes) -> bool:
        try:
            self._steps.send(answer(auth_bytes))
        except StopIteration:
            return True
        return False


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("is_token", [False, True])
def test_both_sides_of_scram_agree(mechanism: str, is_token: bool) -> None:
    user = "a,b=c"
    client = Conversation(Credentials(mechanism, user, "pässword", is_token))
    first = read_client_first(client.message)
    assert first.user == user
    assert first.extensions == ({"tokenauth": "true"} if is_token else {})
    credential = new_credential(mechanism, "pässword", salt=b"salt", iterations=4096)
    server = ScramExchange(mechanism, first, credential, server_nonce="server")
    client.reply(server.server_first())
    assert client.ends(server.server_final(client.message))


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        ("r=other,s=c2FsdA==,i=4096", "foreign nonce"),
        ("r={nonce},s=c2FsdA==,i=4096", "foreign nonce"),
        ("r={nonce}x,s=c2FsdA==,i=4095", "iterations"),
        (f"r={{nonce}}x,s=c2FsdA==,i={ITERATIONS_ACCEPTED_MAX + 1}", "iterations"),
        ("r={nonce}x,s=!,i=4096", "not SCRAM's"),
        ("r={nonce}x,s=c2FsdA==", "not SCRAM's"),
        ("nonsense", "not SCRAM's"),
    ],
)
def test_a_client_does_not_compute_for_a_server_that_makes_no_sense(
    first: str, problem: str
) -> None:
    client = Conversation(Credentials("SCRAM-SHA-256", "a", "b"))
    nonce = read_client_first(client.message).nonce
    with pytest.raises(LoginRefused, match=problem):
        client.reply(first.format(nonce=nonce).encode())


def test_a_server_has_to_know_the_password_too() -> None:
    client = Conversation(Credentials("SCRAM-SHA-256", "a", "b"))
    nonce = read_client_first(client.message).nonce
    client.reply(f"r={nonce}x,s=c2FsdA==,i=4096".encode())
    with pytest.raises(LoginRefused, match="does not know the password"):
        client.ends(b"v=" + base64.b64encode(bytes(32)))


def test_plain_is_one_message() -> None:
    client = Conversation(Credentials("PLAIN", "a", "b"))
    assert read_plain(client.message) == PlainLogin("a", "b")
    assert client.ends(b"")


def test_a_token_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    file.write_text("x.y.z\n")
    credentials = read_credentials(
        {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        }
    )
    client = Conversation(credentials)
    assert read_initial(client.message).token == "x.y.z"
    assert client.ends(b"")
    refused = Conversation(credentials)
    refused.reply(b'{"status":"invalid_token"}')
    assert refused.message == b"\x01"
    file.unlink()
    with pytest.raises(LoginRefused, match="cannot be read"):
        Conversation(credentials)


def test_a_refusal_says_what_the_broker_said_and_not_the_password() -> None:
    steps = log_in(Credentials("PLAIN", "a", "hidden"))
    next(steps)
    steps.send(SaslHandshakeResponse(error_code=0, mechanisms=[]))
    with pytest.raises(LoginRefused, match="wrong password") as caught:
        steps.send(answer(error="wrong password"))
    assert caught.value.option == "sasl.jaas.config"
    assert "hidden" not in repr(Credentials("PLAIN", "a", "hidden"))


def test_a_mechanism_that_is_refused_is_answered_with_those_that_are_offered() -> None:
    steps = log_in(Credentials("PLAIN", "a", "b"))
    next(steps)
    with pytest.raises(LoginRefused, match="it offers SCRAM-SHA-512"):
        steps.send(SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-512"]))


def test_options_become_credentials() -> None:
    options = {"sasl.mechanism": "scram-sha-256", "sasl.jaas.config": JAAS + ";"}
    assert read_credentials(options) == Credentials("SCRAM-SHA-256", "a", "b")
    token = {**options, "sasl.jaas.config": JAAS + " tokenauth=true;"}
    assert read_credentials(token) == Credentials("SCRAM-SHA-256", "a", "b", is_token=True)


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({}, "sasl.mechanism"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.jaas.config"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS}, "sasl.jaas.config"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "X required username=a;"},
            "sasl.jaas.config",
        ),
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.oauthbearer.token.endpoint.url"),
    ],
)
def test_options_that_are_missing_are_named(options: dict[str, str], option: str) -> None:
    with pytest.raises(LoginRefused) as caught:
        read_credentials(options)
    assert caught.value.option == option
