"""The server that stands for the limit of one event loop."""

import socket
import struct

from bench.echo import echo_server


def test_every_request_gets_an_answer_of_the_size_that_was_asked_for() -> None:
    with echo_server(20) as port, socket.create_connection(("127.0.0.1", port), timeout=30) as sock:
        for _ in range(2):
            sock.sendall(b"a request")
            answer = sock.recv(20, socket.MSG_WAITALL)
            assert struct.unpack_from(">i", answer)[0] == len(answer) - 4 == 16
