"""The least that Python does for a round trip: receive, and send an answer.

    python -m bench.echo ANSWER_BYTES

A reader of the event loop for each socket, and nothing is looked at or written. What a node
makes over many connections stands beside this: serving them in Python, one by one, it could
not make more. For clients with one request in flight.
"""

import asyncio
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import uvloop

_BUFFER_BYTES = 1 << 16


def _answer_next(
    loop: asyncio.AbstractEventLoop, sock: socket.socket, buffer: memoryview, answer: bytes
) -> None:
    try:
        if sock.recv_into(buffer):
            sock.send(answer)
            return
    except BlockingIOError:
        return
    except ConnectionError:
        pass
    loop.remove_reader(sock)
    sock.close()


async def _serve(answer: bytes) -> None:
    loop = asyncio.get_running_loop()
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    listening.setblocking(False)
    print(listening.getsockname()[1], flush=True)
    while True:
        sock, _ = await loop.sock_accept(listening)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop.add_reader(sock, partial(_answer_next, loop, sock, buffer, answer))


@contextmanager
def echo_server(answer_bytes: int) -> Iterator[int]:
    """A server in a process of its own; its port."""
    command = [sys.executable, "-m", "bench.echo", str(answer_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline())
        finally:
            server.terminate()


def main() -> None:
    size = int(sys.argv[1])
    uvloop.run(_serve(struct.pack(">i", size - 4) + bytes(size - 4)))


if __name__ == "__main__":
    main()
