"""The socket that an instance of the registry listens on.

Bound before anything else, so that the address is known, and clients that connect early wait
instead of being refused. Imports nothing that takes time.
"""

import socket

from millstream.errors import StartError


def listen_on(host: str, port: int) -> socket.socket:
    """Raises StartError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen()
    except OSError as error:
        bound.close()
        raise StartError(
            f"the schema registry cannot listen on {host}:{port}: {error.strerror}"
        ) from None
    bound.setblocking(False)
    return bound


def local_url(bound: socket.socket, scheme: str = "http") -> str:
    """For clients on this machine."""
    host, port = bound.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
