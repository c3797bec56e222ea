"""ZooKeeper's addresses and credentials, from the node's options."""

from dataclasses import dataclass, field
from typing import Final

from millstream.config import BrokerConfig, ConfigError
from millstream.security.sasl.jaas import parse_jaas

_DEFAULT_PORT: Final = 2181
_SASL_OPTION: Final = "millstream.zookeeper.sasl.jaas.config"
_SASL_MODULE: Final = "DigestLoginModule"


@dataclass(frozen=True, slots=True)
class SaslLogin:
    """A user whom ZooKeeper's JAAS file names; the mechanism is DIGEST-MD5."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Ensemble:
    """`root` is the path below which everything is stored, or empty."""

    hosts: str
    root: str = ""
    session_timeout_ms: int = field(kw_only=True)
    connect_timeout_ms: int = field(kw_only=True)
    # "user:password" of ZooKeeper's digest scheme.
    digest: str | None = field(default=None, repr=False)
    sasl: SaslLogin | None = None
    # Whether only those who log in as this node does may write what is created.
    is_protected: bool = False
    # Whether what was created without a login is protected, too.
    protects_older: bool = False
    is_tls: bool = False
    # A PEM file with key and certificate, and one with the authorities to trust.
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    authority_file: str | None = None
    is_host_checked: bool = True


def ensemble_of(config: BrokerConfig) -> Ensemble | None:
    """None if `zookeeper.connect` is not set. Raises ConfigError."""
    connect = config.optional_string("zookeeper.connect")
    if connect is None:
        return None
    hosts, slash, root = connect.partition("/")
    root = (slash + root).rstrip("/")
    if not all(_is_address(host.strip()) for host in hosts.split(",")):
        raise ConfigError(f"zookeeper.connect: {connect!r} is not host:port,host:port/path")
    if "//" in root or "/." in root:
        raise ConfigError(f"zookeeper.connect: {root!r} is not a path")
    session_ms = config.int("zookeeper.session.timeout.ms")
    connect_ms = config.get("zookeeper.connection.timeout.ms")
    digest = config.optional_string("millstream.zookeeper.digest")
    sasl = _sasl_login(config)
    is_protected = digest is not None or sasl is not None
    if config.boolean("zookeeper.set.acl") and not is_protected:
        raise ConfigError(f"zookeeper.set.acl: needs millstream.zookeeper.digest or {_SASL_OPTION}")
    return Ensemble(
        hosts,
        root,
        session_timeout_ms=session_ms,
        connect_timeout_ms=connect_ms if isinstance(connect_ms, int) else session_ms,
        digest=digest,
        sasl=sasl,
        is_protected=is_protected,
        protects_older=config.boolean("zookeeper.set.acl"),
        is_tls=config.boolean("zookeeper.ssl.client.enable"),
        key_file=config.optional_string("zookeeper.ssl.keystore.location"),
        key_password=config.optional_string("zookeeper.ssl.keystore.password"),
        authority_file=config.optional_string("zookeeper.ssl.truststore.location"),
        is_host_checked=bool(config.string("zookeeper.ssl.endpoint.identification.algorithm")),
    )


def _sasl_login(config: BrokerConfig) -> SaslLogin | None:
    line = config.optional_string(_SASL_OPTION)
    if line is None:
        return None
    try:
        module = parse_jaas(line)
    except ValueError as error:
        raise ConfigError(f"{_SASL_OPTION}: {error}") from None
    username, password = (module.options.get(name) for name in ("username", "password"))
    if module.name != _SASL_MODULE or not username or not password:
        raise ConfigError(
            f'{_SASL_OPTION}: write `{_SASL_MODULE} required username="..." password="...";`'
        )
    return SaslLogin(username, password)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    if not host:
        host, port = text, str(_DEFAULT_PORT)
    return bool(host) and port.isdigit() and 0 < int(port) < 65536 and " " not in text
