"""Addresses as people type them."""

from typing import Final

from millstream.cli.failure import CommandFailed, ExitCode

DEFAULT_PORT: Final = 9092


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, `HOST` or `[IPV6]:PORT`."""
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(DEFAULT_PORT)
    if not port.isdigit() or not 0 < int(port) < 65536 or not host:
        raise CommandFailed(f"{address!r} is not HOST:PORT", exit_code=ExitCode.USAGE)
    return host.strip("[]"), int(port)
