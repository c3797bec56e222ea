"""A blocking connection, over a socket that answers as the test says."""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from millstream.client.blocking import Address, Connection
from millstream.client.sasl import Credentials
from millstream.client.security import PLAINTEXT, Security, SecurityError, log_in
from millstream.errors import ProtocolError
from millstream.wire.apis.metadata import MetadataRequest
from millstream.wire.apis.produce import ProduceRequest
from millstream.wire.apis.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.wire.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from millstream.wire.apis.write_txn_markers import WriteTxnMarkersRequest
from millstream.wire.codec import request_writer, response_reader
from tests.support.broker import Broker

ALL_TOPICS = MetadataRequest(topics=None, allow_auto_topic_creation=False)


@contextlib.contextmanager
def answering(serve: Callable[[socket.socket], None]) -> Iterator[Connection]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def once() -> None:
            sock, _ = server.accept()
            with sock:
                # The first request and no more: the next may be there already.
                [size_bytes] = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
                sock.recv(size_bytes, socket.MSG_WAITALL)
                serve(sock)

        thread = threading.Thread(target=once)
        thread.start()
        connection = Connection(Address(*server.getsockname()), client_id="test")
        try:
            yield connection
        finally:
            connection.close()
            thread.join()


@contextlib.contextmanager
def connected() -> Iterator[Connection]:
    with Broker(topics={"t": 2}) as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        connection = Connection(Address(host, int(port)), client_id="test")
        try:
            yield connection
        finally:
            connection.close()


def test_a_request_goes_in_the_newest_version_and_several_may_be_under_way() -> None:
    with connected() as connection:
        version = connection.versions.newest(MetadataRequest.api)
        assert version == MetadataRequest.api.max_version
        assert [topic.name for topic in connection.ask(ALL_TOPICS).topics] == ["t"]
        body = bytearray()
        request_writer(MetadataRequest, version)(body, ALL_TOPICS)
        for _ in range(2):
            connection.send(MetadataRequest.api, version, body[:1], body[1:])
        for _ in range(2):
            answer = response_reader(MetadataRequest, version)(connection.receive())
            assert len(answer.topics[0].partitions) == 2


def test_a_version_that_the_node_does_not_know_is_not_asked_for() -> None:
    with (
        connected() as connection,
        pytest.raises(ProtocolError, match="does not offer WRITE_TXN_MARKERS"),
    ):
        connection.ask(WriteTxnMarkersRequest(markers=[]), newest=0)


def test_large_pieces_are_sent_without_being_joined() -> None:
    received = bytearray()
    has_first = threading.Event()

    def serve(sock: socket.socket) -> None:
        has_first.set()
        while part := sock.recv(1 << 20):
            received.extend(part)

    pieces = [bytes([number]) * 100_000 for number in range(1, 8)]
    with answering(serve) as connection:
        connection.send(ProduceRequest.api, 9, b"first")
        assert has_first.wait(20)
        connection.send(ProduceRequest.api, 9, *pieces)
    assert received.endswith(b"".join(pieces))


@pytest.mark.parametrize(
    ("sent", "error", "problem"),
    [
        (b"", ConnectionResetError, "closed the connection .perhaps it wants more than"),
        (struct.pack(">i", -1), ProtocolError, "an answer of -1 bytes"),
        (struct.pack(">ii", 4, 12345), ProtocolError, "another request"),
        (b"\x15\x03\x03\x00\x02", SecurityError, "speaks TLS. See 'security.protocol'"),
    ],
)
def test_what_is_no_answer_is_an_error_that_helps(
    sent: bytes, error: type[Exception], problem: str
) -> None:
    with (
        answering(lambda sock: sock.sendall(sent)) as connection,
        pytest.raises(error, match=problem),
    ):
        connection.ask(ALL_TOPICS)


def test_a_plain_login_sends_name_and_password() -> None:
    steps = log_in(Security("SASL_PLAINTEXT", Credentials("PLAIN", "alice", "secret")))
    assert next(steps) == SaslHandshakeRequest(mechanism="PLAIN")
    asked = steps.send(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]))
    assert asked == SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
    with pytest.raises(StopIteration):
        steps.send(SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b""))


def test_a_refused_login_names_the_option() -> None:
    security = Security(
        "SASL_PLAINTEXT", Credentials("PLAIN", "alice", "wrong"), option_prefix="kafka."
    )
    steps = log_in(security)
    next(steps)
    steps.send(SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]))
    with pytest.raises(
        SecurityError, match=r"no such user. See 'kafka.sasl.jaas.config'"
    ) as failed:
        steps.send(
            SaslAuthenticateResponse(error_code=58, error_message="no such user", auth_bytes=b"")
        )
    assert failed.value.error_class == "AUTHENTICATION_FAILED"
    steps = log_in(security)
    next(steps)
    with pytest.raises(SecurityError, match=r"'kafka.sasl.mechanism': the broker refuses PLAIN"):
        steps.send(SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-256"]))
    assert not PLAINTEXT.uses_sasl
