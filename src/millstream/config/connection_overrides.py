"""`max.connections.per.ip.overrides`: addresses that may have more or fewer connections."""

import logging
import socket
from collections.abc import Mapping
from typing import Final

from millstream.errors import ConfigError

log = logging.getLogger(__name__)

OVERRIDES: Final = "max.connections.per.ip.overrides"


def parse_overrides(text: str) -> dict[str, int]:
    """The limit of each host. Raises ConfigError."""
    found: dict[str, int] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        # An IPv6 address has colons, too.
        host, _, count = entry.rpartition(":")
        if not host or not count.isascii() or not count.isdigit():
            raise ConfigError(f"{OVERRIDES}: {entry!r} is not HOST:COUNT")
        found[host.strip("[]")] = int(count)
    return found


def by_address(overrides: Mapping[str, int]) -> dict[str, int]:
    """The limits by address, with names looked up. A name that is unknown now limits nothing."""
    found: dict[str, int] = {}
    for host, count in overrides.items():
        try:
            addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as problem:
            log.warning("%s: %s: %s", OVERRIDES, host, problem.strerror or problem)
            continue
        found.update((str(each[4][0]), count) for each in addresses)
    return found
