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
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _held.append(held)
    port: int = held.getsockname()[1]
    return port
