"""A node with a SASL listener on loopback, and what clients need to log in."""

import base64
import hashlib
import hmac
import os
from typing import Any

from millstream.wire.apis.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.wire.apis.sasl_handshake import SaslHandshakeRequest
from tests.support.broker import Broker
from tests.support.raw_client import RawClient

HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
PLAIN_USER, SCRAM_USER = "paul", "sarah"
# Made for this run.
PASSWORD = base64.urlsafe_b64encode(os.urandom(12)).decode()


def sasl_settings(*mechanisms: str, **more: str) -> dict[str, str]:
    """Options of a node; dots in the names of `more` are written as double underscores."""
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(mechanisms or ("PLAIN", *HASHES)),
        "sasl.plain.allow.without.tls": "true",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'PlainLoginModule required user_{PLAIN_USER}="{PASSWORD}";'
        ),
        "sasl.scram.initial.users": ";".join(
            f"{name}=[name={SCRAM_USER},password={PASSWORD}]" for name in HASHES
        ),
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def sasl_node(*mechanisms: str, **more: str) -> Broker:
    return Broker(settings=sasl_settings(*mechanisms, **more))


def librdkafka(bootstrap: str, mechanism: str, user: str, password: str) -> dict[str, Any]:
    """Options of confluent-kafka's clients."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    }


def choose(client: RawClient, mechanism: str) -> int:
    """The error code."""
    return int(client.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code)


def step(client: RawClient, message: bytes) -> SaslAuthenticateResponse:
    return client.ask(SaslAuthenticateRequest(auth_bytes=message), 2)


def log_in_plain(client: RawClient, user: str, password: str) -> SaslAuthenticateResponse:
    assert choose(client, "PLAIN") == 0
    return step(client, f"\0{user}\0{password}".encode())


def scram_final(
    first_bare: bytes,
    server_first: bytes,
    password: str,
    mechanism: str,
    nonce: bytes | None = None,
) -> bytes:
    """The client's last message, after RFC 5802; with another nonce than the server's, if one
    is given."""
    name = HASHES[mechanism]
    fields = dict(part.split(b"=", 1) for part in server_first.split(b","))
    salt, iterations = base64.b64decode(fields[b"s"]), int(fields[b"i"])
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    without_proof = b"c=biws,r=" + (nonce or fields[b"r"])
    signed = b",".join((first_bare, server_first, without_proof))
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return without_proof + b",p=" + base64.b64encode(proof)


def log_in_scram(
    client: RawClient, user: str, password: str, mechanism: str = "SCRAM-SHA-256"
) -> SaslAuthenticateResponse:
    assert choose(client, mechanism) == 0
    bare = f"n={user},r=fyko".encode()
    first = step(client, b"n,," + bare)
    assert first.error_code == 0
    return step(client, scram_final(bare, bytes(first.auth_bytes), password, mechanism))
