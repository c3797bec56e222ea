"""TLS and SASL of a client, from Kafka's own option names.

Stores are PEM or PKCS12; a Java keystore is refused with the command that converts it. A login is a
conversation without I/O: requests come out, answers go in.
"""

import base64
import hashlib
import hmac
import os
import re
import socket
import ssl
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Final

from millstream.config import ConfigError
from millstream.errors import KafkaCode
from millstream.security.tls import (
    NO_KEYSTORE,
    NO_TRUSTSTORE,
    Store,
    client_context,
    keystore_of,
    truststore_of,
)
from millstream.wire.apis.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.wire.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from millstream.wire.message import Message, Request

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MECHANISMS = ("PLAIN", *_HASHES)


# A conversation: each request that comes out wants its answer sent in.
Login = Generator[Request[Message], Message, None]


class SecurityError(Exception):
    """A refusal that will not pass by itself: of a class that tools can look for, and a text
    that names the option to look at."""

    def __init__(self, error_class: str, text: str) -> None:
        super().__init__(text)
        self.error_class = error_class


@dataclass(frozen=True, slots=True)
class Security:
    """Hashable, because connections are shared by address and security."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    username: str = ""
    password: str = ""
    truststore: Store = NO_TRUSTSTORE
    keystore: Store = NO_KEYSTORE
    checks_host_name: bool = True
    # What stands before the names of options where a person writes them: messages say it too.
    option_prefix: str = ""

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def option(self, name: str) -> str:
        return f"'{self.option_prefix}{name}'"


PLAINTEXT: Final = Security()


def _option_error(option: str, text: str) -> SecurityError:
    return SecurityError("INVALID_OPTION", f"Option {option}: {text}")


def read_security(kafka_options: Mapping[str, str], option_prefix: str = "") -> Security:
    """From options by Kafka's names, in lower case and without the prefix."""
    prefixed = Security(option_prefix=option_prefix).option
    protocol = kafka_options.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise _option_error(
            prefixed("security.protocol"), f"must be one of {', '.join(_PROTOCOLS)}"
        )
    mechanism, username, password = "", "", ""
    if protocol.startswith("SASL"):
        mechanism = kafka_options.get("sasl.mechanism", "GSSAPI").upper()
        if mechanism not in _MECHANISMS:
            raise _option_error(
                prefixed("sasl.mechanism"), f"must be one of {', '.join(_MECHANISMS)}"
            )
        username, password = _credentials(kafka_options, prefixed("sasl.jaas.config"))
    return Security(
        protocol=protocol,
        mechanism=mechanism,
        username=username,
        password=password,
        truststore=truststore_of(kafka_options),
        keystore=keystore_of(kafka_options),
        checks_host_name=kafka_options.get("ssl.endpoint.identification.algorithm", "https").strip()
        != "",
        option_prefix=option_prefix,
    )


def _credentials(kafka_options: Mapping[str, str], option: str) -> tuple[str, str]:
    jaas = kafka_options.get("sasl.jaas.config", "")
    found = dict(re.findall(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"', jaas))
    if set(found) != {"username", "password"}:
        raise _option_error(
            option,
            'must hold a user name and a password: ScramLoginModule required username="..." '
            'password="...";',
        )
    return tuple(re.sub(r"\\(.)", r"\1", found[name]) for name in ("username", "password"))  # type: ignore[return-value]  # two names, two values


def wrap_tls(sock: socket.socket, security: Security, host: str) -> ssl.SSLSocket:
    return tls_context(security).wrap_socket(sock, server_hostname=host)


def tls_context(security: Security) -> ssl.SSLContext:
    """Raises SecurityError at once for files that are missing or are not what they should be."""
    try:
        return client_context(
            security.keystore, security.truststore, checks_host_name=security.checks_host_name
        )
    except ConfigError as problem:
        raise SecurityError(
            "INVALID_OPTION", f"Option {security.option_prefix}{problem}"
        ) from problem


def tls_refusal(failed: ssl.SSLError, security: Security) -> SecurityError | None:
    """What will not pass by itself, with the option to look at; None for the rest."""
    reason = failed.reason or ""
    if isinstance(failed, ssl.SSLCertVerificationError):
        return SecurityError(
            "BROKER_NOT_TRUSTED",
            f"{failed.verify_message}. See {security.option('ssl.truststore.location')}, and "
            f"{security.option('ssl.endpoint.identification.algorithm')} for names that do not "
            "match",
        )
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return SecurityError(
            "CERTIFICATE_REFUSED",
            f"The broker does not accept our certificate, or wants one ({reason}). See "
            f"{security.option('ssl.keystore.location')}",
        )
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return SecurityError(
            "NO_TLS_THERE",
            f"The broker does not speak TLS there. See {security.option('security.protocol')}",
        )
    return None


def hint_after_close(security: Security) -> str:
    """Why a broker may close a connection before it answers. The hint reveals only what a broker
    shows to every client."""
    if security.uses_tls and not security.keystore.is_set:
        return f" (perhaps it wants a certificate: {security.option('ssl.keystore.location')})"
    if not security.uses_tls and not security.uses_sasl:
        option = security.option("security.protocol")
        return f" (perhaps it wants more than {option}='PLAINTEXT')"
    return ""


def log_in(security: Security) -> Login:
    """SASL on a fresh connection. Raises SecurityError when the broker refuses."""
    answer = yield SaslHandshakeRequest(mechanism=security.mechanism)
    assert isinstance(answer, SaslHandshakeResponse)
    if answer.error_code != KafkaCode.NONE:
        raise _option_error(
            security.option("sasl.mechanism"), f"the broker refuses {security.mechanism}"
        )
    if security.mechanism == "PLAIN":
        token = f"\0{security.username}\0{security.password}".encode()
        yield from _authenticate(security, token)
    else:
        yield from _log_in_scram(security)


def _authenticate(security: Security, token: bytes) -> Generator[Request[Message], Message, bytes]:
    answer = yield SaslAuthenticateRequest(auth_bytes=token)
    assert isinstance(answer, SaslAuthenticateResponse)
    if answer.error_code != KafkaCode.NONE:
        text = answer.error_message or f"error {answer.error_code}"
        raise SecurityError(
            "AUTHENTICATION_FAILED", f"{text}. See {security.option('sasl.jaas.config')}"
        )
    return bytes(answer.auth_bytes)


def _log_in_scram(security: Security) -> Login:
    """RFC 5802; the server's signature is checked too, so a false broker learns nothing."""
    name = _HASHES[security.mechanism]
    username = security.username.replace("=", "=3D").replace(",", "=2C")
    nonce = base64.b64encode(os.urandom(18)).decode()
    first_bare = f"n={username},r={nonce}"
    server_first = (yield from _authenticate(security, f"n,,{first_bare}".encode())).decode()
    fields = dict(part.split("=", 1) for part in server_first.split(","))
    if not fields["r"].startswith(nonce):
        raise SecurityError("AUTHENTICATION_FAILED", "the broker answered with a foreign nonce")
    salted = hashlib.pbkdf2_hmac(
        name, security.password.encode(), base64.b64decode(fields["s"]), int(fields["i"])
    )
    client_key = hmac.digest(salted, b"Client Key", name)
    without_proof = f"c=biws,r={fields['r']}"
    signed = f"{first_bare},{server_first},{without_proof}".encode()
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    final = f"{without_proof},p={proof.decode()}".encode()
    server_final = yield from _authenticate(security, final)
    expected = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
    if server_final.split(b",")[0] != b"v=" + base64.b64encode(expected):
        raise SecurityError("AUTHENTICATION_FAILED", "the broker does not know the password itself")
