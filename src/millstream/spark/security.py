"""TLS and SASL of the blocking client, from Kafka's own `kafka.*` option names.

Certificates are PEM; a Java keystore is refused with the command that converts it.
"""

import base64
import hashlib
import hmac
import os
import re
import socket
import ssl
import struct
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from millstream.spark.failure import SourceError, option_error

# Sends a request body under an API key and version, and returns the answer's body.
Exchange = Callable[[int, int, bytes], memoryview]

_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MECHANISMS = ("PLAIN", *_HASHES)


@dataclass(frozen=True, slots=True)
class Security:
    """Hashable, because connections are shared by address and security."""

    protocol: str = "PLAINTEXT"
    mechanism: str = ""
    username: str = ""
    password: str = ""
    truststore: str = ""
    truststore_pem: str = ""
    keystore: str = ""
    keystore_pem: str = ""
    key_password: str = ""
    checks_host_name: bool = True

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL")


PLAINTEXT: Final = Security()


def read_security(kafka_options: Mapping[str, str]) -> Security:
    """From options whose `kafka.` is gone and whose names are lower-case."""
    protocol = kafka_options.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise option_error("kafka.security.protocol", f"must be one of {', '.join(_PROTOCOLS)}")
    for store in ("truststore", "keystore"):
        location = kafka_options.get(f"ssl.{store}.location", "")
        kind = kafka_options.get(f"ssl.{store}.type", "PEM" if location.endswith(".pem") else "JKS")
        if location and kind.upper() != "PEM":
            raise option_error(
                f"kafka.ssl.{store}.location",
                "only PEM files are read here. Convert the Java keystore with `keytool "
                f"-importkeystore` and `openssl pkcs12`, and set kafka.ssl.{store}.type=PEM",
            )
    mechanism, username, password = "", "", ""
    if protocol.startswith("SASL"):
        mechanism = kafka_options.get("sasl.mechanism", "GSSAPI").upper()
        if mechanism not in _MECHANISMS:
            raise option_error("kafka.sasl.mechanism", f"must be one of {', '.join(_MECHANISMS)}")
        username, password = _credentials(kafka_options)
    return Security(
        protocol=protocol,
        mechanism=mechanism,
        username=username,
        password=password,
        truststore=kafka_options.get("ssl.truststore.location", ""),
        truststore_pem=kafka_options.get("ssl.truststore.certificates", ""),
        keystore=kafka_options.get("ssl.keystore.location", ""),
        keystore_pem=kafka_options.get("ssl.keystore.certificate.chain", "")
        + kafka_options.get("ssl.keystore.key", ""),
        key_password=kafka_options.get("ssl.key.password", ""),
        checks_host_name=kafka_options.get("ssl.endpoint.identification.algorithm", "https").strip()
        != "",
    )


def _credentials(kafka_options: Mapping[str, str]) -> tuple[str, str]:
    jaas = kafka_options.get("sasl.jaas.config", "")
    found = dict(re.findall(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"', jaas))
    if set(found) != {"username", "password"}:
        raise option_error(
            "kafka.sasl.jaas.config",
            'must hold a user name and a password: ScramLoginModule required username="..." '
            'password="...";',
        )
    return tuple(re.sub(r"\\(.)", r"\1", found[name]) for name in ("username", "password"))  # type: ignore[return-value]  # two names, two values


def wrap_tls(sock: socket.socket, security: Security, host: str) -> ssl.SSLSocket:
    return _tls_context(security).wrap_socket(sock, server_hostname=host)


def _tls_context(security: Security) -> ssl.SSLContext:
    """Raises SourceError at once for files that are missing or are not what they should be."""
    try:
        context = ssl.create_default_context(
            cafile=security.truststore or None, cadata=security.truststore_pem or None
        )
    except OSError as failed:
        raise option_error("kafka.ssl.truststore.location", str(failed)) from failed
    if not security.checks_host_name:
        context.check_hostname = False
    try:
        _load_certificate(context, security)
    except OSError as failed:
        raise option_error(
            "kafka.ssl.keystore.location",
            f"{failed}. It must hold the certificate and its key, and 'kafka.ssl.key.password' "
            "open the key",
        ) from failed
    return context


def _load_certificate(context: ssl.SSLContext, security: Security) -> None:
    # Never asked for on the terminal: a worker has none.
    password = security.key_password
    if security.keystore:
        context.load_cert_chain(security.keystore, password=password)
    elif security.keystore_pem:
        # The ssl module takes a client's key from a file only; it is gone at once.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(security.keystore_pem)
            file.flush()
            context.load_cert_chain(file.name, password=password)


def tls_refusal(failed: ssl.SSLError) -> SourceError | None:
    """What will not pass by itself, with the option to look at; None for the rest."""
    reason = failed.reason or ""
    if isinstance(failed, ssl.SSLCertVerificationError):
        return SourceError(
            "BROKER_NOT_TRUSTED",
            f"{failed.verify_message}. See 'kafka.ssl.truststore.location', and "
            "'kafka.ssl.endpoint.identification.algorithm' for names that do not match",
        )
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return SourceError(
            "CERTIFICATE_REFUSED",
            f"The broker does not accept our certificate, or wants one ({reason}). See "
            "'kafka.ssl.keystore.location'",
        )
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return SourceError(
            "NO_TLS_THERE", "The broker does not speak TLS there. See 'kafka.security.protocol'"
        )
    return None


def log_in(security: Security, exchange: Exchange) -> None:
    """SASL on a fresh connection. Raises SourceError when the broker refuses."""
    mechanism = security.mechanism.encode()
    answer = exchange(_SASL_HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism)
    if struct.unpack_from(">h", answer)[0] != 0:
        raise option_error("kafka.sasl.mechanism", f"the broker refuses {security.mechanism}")
    if security.mechanism == "PLAIN":
        _authenticate(exchange, f"\0{security.username}\0{security.password}".encode())
    else:
        _log_in_scram(security, exchange)


def _authenticate(exchange: Exchange, token: bytes) -> bytes:
    answer = exchange(_SASL_AUTHENTICATE, 1, struct.pack(">i", len(token)) + token)
    code, text_length = struct.unpack_from(">hh", answer)
    position = 4 + max(text_length, 0)
    if code != 0:
        text = bytes(answer[4:position]).decode(errors="replace") or f"error {code}"
        raise SourceError("AUTHENTICATION_FAILED", f"{text}. See 'kafka.sasl.jaas.config'")
    (length,) = struct.unpack_from(">i", answer, position)
    return bytes(answer[position + 4 : position + 4 + max(length, 0)])


def _log_in_scram(security: Security, exchange: Exchange) -> None:
    """RFC 5802; the server's signature is checked too, so a false broker learns nothing."""
    name = _HASHES[security.mechanism]
    username = security.username.replace("=", "=3D").replace(",", "=2C")
    nonce = base64.b64encode(os.urandom(18)).decode()
    first_bare = f"n={username},r={nonce}"
    server_first = _authenticate(exchange, f"n,,{first_bare}".encode()).decode()
    fields = dict(part.split("=", 1) for part in server_first.split(","))
    if not fields["r"].startswith(nonce):
        raise SourceError("AUTHENTICATION_FAILED", "the broker answered with a foreign nonce")
    salted = hashlib.pbkdf2_hmac(
        name, security.password.encode(), base64.b64decode(fields["s"]), int(fields["i"])
    )
    client_key = hmac.digest(salted, b"Client Key", name)
    without_proof = f"c=biws,r={fields['r']}"
    signed = f"{first_bare},{server_first},{without_proof}".encode()
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
    server_final = _authenticate(exchange, f"{without_proof},p={proof.decode()}".encode())
    expected = hmac.digest(hmac.digest(salted, b"Server Key", name), signed, name)
    if server_final.split(b",")[0] != b"v=" + base64.b64encode(expected):
        raise SourceError("AUTHENTICATION_FAILED", "the broker does not know the password itself")
