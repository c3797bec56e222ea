"""Ports for programs that must know theirs before they start, or keep it over a restart.

Where a program says which port it took, 0 is simpler. But while a program is down its port is
free: the kernel may give it to the next socket of any test that runs beside this one.
"""

import socket

_held: list[socket.socket] = []


def reserve_port() -> int:
    """A port of 127.0.0.1 on which only a program that asks for it by number listens.

    This process holds it until it ends. That does not hinder a server: both sockets have
    SO_REUSEADDR, and this one does not listen.
    """
    return reserve_ports(1)


def reserve_ports(count: int) -> int:
    """So many ports in a row, held in the same way; the first one."""
    while True:
        first = 0
        sockets: list[socket.socket] = []
        try:
            for number in range(count):
                sockets.append(_bound(first + number if first else 0))
                first = first or sockets[0].getsockname()[1]
        except OSError:
            # Somebody has one of them: elsewhere.
            for held in sockets:
                held.close()
            continue
        _held.extend(sockets)
        return first


def _bound(port: int) -> socket.socket:
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind(("127.0.0.1", port))
    except OSError:
        held.close()
        raise
    return held
