"""TLS and SASL of a client, from Kafka's own option names.

Stores are PEM or PKCS12; a Java keystore is refused with the command that converts it. A login is a
conversation (`sasl`): requests come out, answers go in.
"""

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millstream.client import sasl
from millstream.client.sasl import Credentials, Login, LoginRefused, read_credentials
from millstream.errors import ConfigError
from millstream.security.tls import (
    NO_KEYSTORE,
    NO_TRUSTSTORE,
    Store,
    client_context,
    keystore_of,
    truststore_of,
)

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NO_CREDENTIALS: Final = Credentials()


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
    credentials: Credentials = NO_CREDENTIALS
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
    credentials = NO_CREDENTIALS
    if protocol.startswith("SASL"):
        try:
            credentials = read_credentials(kafka_options)
        except LoginRefused as refused:
            raise _option_error(prefixed(refused.option), str(refused)) from None
    return Security(
        protocol=protocol,
        credentials=credentials,
        truststore=truststore_of(kafka_options),
        keystore=keystore_of(kafka_options),
        checks_host_name=kafka_options.get("ssl.endpoint.identification.algorithm", "https").strip()
        != "",
        option_prefix=option_prefix,
    )


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
    """SASL on a fresh connection. Raises SecurityError when either side refuses."""
    try:
        yield from sasl.log_in(security.credentials)
    except LoginRefused as refused:
        option = security.option(refused.option)
        if refused.option != "sasl.jaas.config":
            raise _option_error(option, str(refused)) from None
        raise SecurityError("AUTHENTICATION_FAILED", f"{refused}. See {option}") from None
