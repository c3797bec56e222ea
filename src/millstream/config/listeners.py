"""The addresses that a node listens on, and those that clients connect to.

`listeners` has one entry per name. `advertised.listeners` may give another address for the same
name; clients of that listener get that address. A listener without TLS that other machines can
reach is refused unless it is explicitly allowed; whether clients log in does not matter for that.
"""

import ipaddress
import re
import socket
from typing import Final

from millstream.config.broker_config import BrokerConfig
from millstream.errors import ConfigError
from millstream.lazy_dataclass import dataclass

_ENTRY: Final = re.compile(
    r"(?:(?P<name>[A-Za-z0-9_.-]+)://)?(?P<host>\[[0-9a-fA-F:.%]*\]|[^:/\s]*):(?P<port>-?\d+)"
)
_ALL_INTERFACES: Final = ("", "0.0.0.0", "::")
_DEFAULT_NAME: Final = "PLAINTEXT"
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Listener:
    """An empty host means all interfaces; port 0 means any free port."""

    name: str
    host: str
    port: int
    protocol: str
    advertised_host: str
    advertised_port: int

    @property
    def is_loopback(self) -> bool:
        """Can only this machine reach it?"""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL")


@dataclass(frozen=True, slots=True)
class _Address:
    name: str
    host: str
    port: int


def parse_listeners(config: BrokerConfig) -> list[Listener]:
    """The listeners to open, in the order given. Raises ConfigError."""
    protocols = _protocols(config)
    for_quorum = {name.upper() for name in config.list("controller.listener.names")}
    opened = [
        address
        for address in _addresses("listeners", config.list("listeners"))
        if address.name not in for_quorum
    ]
    if not opened:
        raise ConfigError("listeners: there is none that clients could use")
    advertised = _advertised(config, opened, for_quorum)
    listeners = []
    for address in opened:
        protocol = protocols.get(address.name)
        if protocol is None:
            raise ConfigError(
                f"listeners: listener.security.protocol.map has no protocol for {address.name}"
            )
        reached_at = advertised.get(address.name, address)
        listeners.append(
            Listener(
                name=address.name,
                host=address.host,
                port=address.port,
                protocol=protocol,
                advertised_host=_reachable(reached_at.host),
                # With port 0 the real one is known only after binding.
                advertised_port=reached_at.port,
            )
        )
    return listeners


def insecure_listeners(config: BrokerConfig, listeners: list[Listener]) -> list[Listener]:
    """Those that others on the network can listen in on. Raises ConfigError if that was not
    explicitly allowed."""
    found = [each for each in listeners if not each.uses_tls and not each.is_loopback]
    if found and not config.boolean("allow.insecure.listeners"):
        first = found[0]
        raise ConfigError(
            f"listener {first.name} on {first.host or 'all interfaces'}: {first.protocol} is not "
            "encrypted, and other machines can reach it. Use TLS (`millstream secure DIR` creates "
            "all it needs), listen on 127.0.0.1, or set allow.insecure.listeners=true in a network "
            "that you trust"
        )
    return found


def inter_broker_listener(config: BrokerConfig, listeners: list[Listener]) -> Listener:
    """The listener that other nodes use: the one that is named or has the protocol that is set,
    else the first."""
    wanted = config.optional_string("inter.broker.listener.name")
    if wanted is not None:
        found = [listener for listener in listeners if listener.name == wanted.upper()]
        if not found:
            raise ConfigError(f"inter.broker.listener.name: {wanted} is not one of the listeners")
        return found[0]
    if not config.is_set("security.inter.broker.protocol"):
        return listeners[0]
    protocol = config.string("security.inter.broker.protocol")
    found = [listener for listener in listeners if listener.protocol == protocol]
    if not found:
        raise ConfigError(f"security.inter.broker.protocol: no listener has {protocol}")
    return found[0]


def _protocols(config: BrokerConfig) -> dict[str, str]:
    protocols = {}
    for entry in config.string("listener.security.protocol.map").split(","):
        name, colon, protocol = entry.strip().partition(":")
        if not colon or protocol.upper() not in _PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {entry!r} is not NAME:PROTOCOL with one of "
                + ", ".join(_PROTOCOLS)
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def _addresses(option: str, entries: tuple[str, ...]) -> list[_Address]:
    addresses: list[_Address] = []
    for entry in entries:
        found = _ENTRY.fullmatch(entry)
        if found is None or not 0 <= int(found["port"]) <= 65535:
            raise ConfigError(f"{option}: {entry!r} is not NAME://HOST:PORT")
        name = (found["name"] or _DEFAULT_NAME).upper()
        address = _Address(name, found["host"].strip("[]"), int(found["port"]))
        if any(other.name == name for other in addresses):
            raise ConfigError(f"{option}: {name} is there twice")
        addresses.append(address)
    return addresses


def _advertised(
    config: BrokerConfig, opened: list[_Address], for_quorum: set[str]
) -> dict[str, _Address]:
    addresses = _addresses("advertised.listeners", config.list("advertised.listeners"))
    known = {address.name for address in opened}
    for address in addresses:
        if address.name in known:
            if address.host in _ALL_INTERFACES[1:]:
                raise ConfigError(f"advertised.listeners: clients cannot connect to {address.host}")
        # A flag that replaced the listeners of a file leaves the file's other names behind.
        elif address.name not in for_quorum and config.origin("listeners") != "flag":
            raise ConfigError(f"advertised.listeners: {address.name} is not one of the listeners")
    return {address.name: address for address in addresses}


def _reachable(host: str) -> str:
    return socket.gethostname() if host in _ALL_INTERFACES else host
