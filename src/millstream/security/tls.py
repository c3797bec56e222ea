"""Keys, certificates and TLS versions, from Kafka's `ssl.` options to an `ssl.SSLContext`.

A store is PEM or PKCS12, in a file or, for PEM, in the option itself. This is the one module of
the package that reads files: the node reads them again when they change.
"""

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final

from millstream.errors import ConfigError
from millstream.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from millstream.config import ListenerConfig

_PEM_MARK: Final = b"-----BEGIN"
_JKS_MAGIC: Final = bytes.fromhex("feedfeed")
# Every PKCS12 file is an ASN.1 sequence.
_PKCS12_MARK: Final = b"\x30"
_STORE_OPTIONS: Final = (
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
)
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_SUITES_13: Final = frozenset(
    {
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)


@dataclass(frozen=True, slots=True)
class Store:
    """A keystore or a truststore: a file, or PEM text. `option` begins the names in messages."""

    option: str
    location: str = ""
    kind: str = "JKS"
    password: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    pem: str = field(default="", repr=False)

    @property
    def is_set(self) -> bool:
        return bool(self.location or self.pem)


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """What one listener needs to speak TLS."""

    keystore: Store
    truststore: Store
    client_auth: str
    protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]

    @property
    def files(self) -> tuple[str, ...]:
        stores = (self.keystore, self.truststore)
        return tuple(store.location for store in stores if store.location)


NO_KEYSTORE: Final = Store("ssl.keystore")
NO_TRUSTSTORE: Final = Store("ssl.truststore")


def keystore_of(options: Mapping[str, str]) -> Store:
    """From options by Kafka's names; those that are not set may be missing."""
    parts = (options.get("ssl.keystore.key"), options.get("ssl.keystore.certificate.chain"))
    return Store(
        option="ssl.keystore",
        location=options.get("ssl.keystore.location", ""),
        kind=options.get("ssl.keystore.type", "JKS").upper(),
        password=options.get("ssl.keystore.password", ""),
        key_password=options.get("ssl.key.password", ""),
        pem="\n".join(part for part in parts if part),
    )


def truststore_of(options: Mapping[str, str]) -> Store:
    return Store(
        option="ssl.truststore",
        location=options.get("ssl.truststore.location", ""),
        kind=options.get("ssl.truststore.type", "JKS").upper(),
        password=options.get("ssl.truststore.password", ""),
        pem=options.get("ssl.truststore.certificates", ""),
    )


def read_store_options(config: "ListenerConfig") -> dict[str, str]:
    """The options of both stores that are set."""
    found = {name: config.optional_string(name) for name in _STORE_OPTIONS}
    return {name: value for name, value in found.items() if value}


def read_tls_options(config: "ListenerConfig") -> TlsOptions:
    stores = read_store_options(config)
    return TlsOptions(
        keystore=keystore_of(stores),
        truststore=truststore_of(stores),
        client_auth=config.string("ssl.client.auth"),
        protocols=config.list("ssl.enabled.protocols"),
        cipher_suites=config.list("ssl.cipher.suites"),
    )


def server_context(options: TlsOptions) -> ssl.SSLContext:
    """Raises ConfigError, in one line, for what cannot be used."""
    if not options.keystore.is_set:
        raise ConfigError(
            "ssl.keystore.location: a TLS listener needs a key and a certificate; "
            "`millstream secure DIR` creates them"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A client that makes us negotiate again and again would cost us far more than itself.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # Without tickets each handshake proves the certificate again, also after a reload.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    choose_versions(context, options.protocols, options.cipher_suites)
    load_key(context, options.keystore)
    context.verify_mode = _CLIENT_AUTH[options.client_auth]
    if options.truststore.is_set:
        load_trust(context, options.truststore)
    elif context.verify_mode is not ssl.CERT_NONE:
        raise ConfigError(
            f"ssl.client.auth={options.client_auth} needs the certificates that sign those of "
            "clients: set ssl.truststore.location"
        )
    return context


def client_context(
    keystore: Store, truststore: Store, *, checks_host_name: bool = True
) -> ssl.SSLContext:
    """For connections to a server. Without a truststore, the system's certificates count."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = checks_host_name
    if truststore.is_set:
        load_trust(context, truststore)
    else:
        context.load_default_certs()
    if keystore.is_set:
        load_key(context, keystore)
    return context


# -- versions and ciphers -----------------------------------------------------------------


def choose_versions(
    context: ssl.SSLContext, protocols: Sequence[str], suites: Sequence[str]
) -> None:
    """Allow these TLS versions and ciphers only. Raises ConfigError."""
    wanted = {_VERSIONS[name] for name in protocols}
    older = [openssl_name(suite) for suite in suites if suite not in _SUITES_13]
    if suites and not older:
        wanted.discard(ssl.TLSVersion.TLSv1_2)
    if suites and len(older) == len(suites):
        wanted.discard(ssl.TLSVersion.TLSv1_3)
    if not wanted:
        raise ConfigError(
            "ssl.enabled.protocols and ssl.cipher.suites: no TLS version is left to speak"
        )
    context.minimum_version, context.maximum_version = min(wanted), max(wanted)
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError:
            raise ConfigError(
                f"ssl.cipher.suites: none of {', '.join(older)} is known; see `openssl ciphers`"
            ) from None


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a cipher suite of TLS 1.2, from the IANA's, which Java uses."""
    if not suite.startswith("TLS_"):
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = re.sub(r"AES_(\d+)_(GCM|CCM)", r"AES\1_\2", cipher)
    cipher = re.sub(r"AES_(\d+)_CBC", r"AES\1", cipher)
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    # A plain RSA exchange is not part of OpenSSL's names.
    joined = cipher if exchange == "RSA" else f"{exchange}_{cipher}"
    return joined.replace("_", "-")


# -- stores ---------------------------------------------------------------------------------


def load_key(context: ssl.SSLContext, store: Store) -> None:
    """Raises ConfigError."""
    pem = _key_pem(store)
    # Never None: OpenSSL would ask for it on the terminal.
    password = store.key_password
    try:
        with _as_file(pem) as path:
            context.load_cert_chain(path, password=password)
    except OSError as failed:
        raise ConfigError(
            f"{_where(store)}: {_reason(failed)}. It must hold a private key and its certificate, "
            "and ssl.key.password open the key if that is encrypted"
        ) from None


def load_trust(context: ssl.SSLContext, store: Store) -> None:
    """Raises ConfigError."""
    content = _content(store)
    try:
        if content.startswith(_PKCS12_MARK):
            content = _pkcs12_certificates(store, content)
        context.load_verify_locations(cadata=content.decode("ascii", "replace"))
    except (OSError, ValueError) as failed:
        raise ConfigError(
            f"{_where(store)}: {_reason(failed)}. It must hold certificates as PEM or PKCS12"
        ) from None


def _where(store: Store) -> str:
    if store.location:
        return f"{store.option}.location={store.location}"
    return f"{store.option}.*, as PEM text"


def _reason(failed: Exception) -> str:
    if isinstance(failed, ssl.SSLError):
        return (failed.reason or "unreadable").replace("_", " ").lower()
    return getattr(failed, "strerror", None) or str(failed)


def _content(store: Store) -> bytes:
    """The store as it is. Raises ConfigError for what cannot be read at all."""
    if not store.location:
        # Written in one line of a properties file, line ends may have become spaces.
        return _with_line_ends(store.pem).encode()
    try:
        with open(store.location, "rb") as file:
            content = file.read()
    except OSError as failed:
        raise ConfigError(f"{_where(store)}: {failed.strerror}") from None
    if content.startswith(_JKS_MAGIC):
        raise ConfigError(
            f"{_where(store)}: a Java keystore (JKS) cannot be read. Convert it: keytool "
            f"-importkeystore -srckeystore {store.location} -destkeystore {store.location}.p12 "
            "-deststoretype PKCS12"
        )
    is_pem = _PEM_MARK in content
    if store.kind == "PEM" and not is_pem:
        raise ConfigError(f"{_where(store)}: not a PEM file, as {store.option}.type says it is")
    return content[content.index(_PEM_MARK) :] if is_pem else content


def _with_line_ends(pem: str) -> str:
    """Each BEGIN and END of PEM needs a line of its own."""
    if ":" in pem:
        # The headers of an old kind of encrypted key need their lines as they are.
        return pem
    blocks = re.findall(r"(-----BEGIN [^-]+-----)(.*?)(-----END [^-]+-----)", pem, re.DOTALL)
    return "\n".join("\n".join((begin, *body.split(), end, "")) for begin, body, end in blocks)


def _key_pem(store: Store) -> bytes:
    content = _content(store)
    if not content.startswith(_PKCS12_MARK):
        return content
    pkcs12, serialization = _cryptography(store)
    try:
        password = store.password.encode() or None
        bag = pkcs12.load_pkcs12(content, password)
    except ValueError:
        raise _wrong_password(store) from None
    if bag.key is None or bag.cert is None:
        raise ConfigError(f"{_where(store)}: holds no private key with a certificate")
    encryption = (
        serialization.BestAvailableEncryption(store.key_password.encode())
        if store.key_password
        else serialization.NoEncryption()
    )
    key: bytes = bag.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
    chain = [bag.cert, *bag.additional_certs]
    certificates = [entry.certificate.public_bytes(serialization.Encoding.PEM) for entry in chain]
    return key + b"".join(certificates)


def _pkcs12_certificates(store: Store, content: bytes) -> bytes:
    pkcs12, serialization = _cryptography(store)
    try:
        bag = pkcs12.load_pkcs12(content, store.password.encode() or None)
    except ValueError:
        raise _wrong_password(store) from None
    entries = [*([] if bag.cert is None else [bag.cert]), *bag.additional_certs]
    return b"".join(entry.certificate.public_bytes(serialization.Encoding.PEM) for entry in entries)


def _wrong_password(store: Store) -> ConfigError:
    return ConfigError(
        f"{_where(store)}: not PEM, and not a PKCS12 file that {store.option}.password opens"
    )


def _cryptography(store: Store):  # type: ignore[no-untyped-def]  # modules, which are typed
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise ConfigError(
            f"{_where(store)}: PKCS12 needs cryptography: pip install 'millstream[security]'. "
            f"Or convert it: openssl pkcs12 -in {store.location} -out {store.location}.pem -nodes"
        ) from error
    return pkcs12, serialization


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """The ssl module takes keys from files only. This one is in memory where that is possible,
    and never readable by others."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("key")
        with open(descriptor, "wb") as memory:
            memory.write(content)
            memory.flush()
            yield f"/proc/self/fd/{descriptor}"
    else:
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(content)
            file.flush()
            yield file.name
