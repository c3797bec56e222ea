"""Clients that are broken or mean: their connection is closed with one line, nobody else
notices, and memory stays where it was.

Covers broker/network, broker/requests.
"""

import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.broker.requests.routes import served_apis
from millstream.wire.apis import declared_api
from millstream.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.wire.apis.metadata import MetadataRequest
from millstream.wire.cursor import TAGS_MAX
from millstream.wire.output import unsigned_varint
from tests.broker.handlers.exchanges import batch, produce
from tests.support.broker import Broker
from tests.support.node import MillstreamNode
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 1}) as running:
        yield running


def is_alive(bootstrap: str) -> bool:
    with RawClient(bootstrap) as canary:
        return bool(canary.ask(MetadataRequest(topics=None), 1).brokers)


def header(api: int, version: int) -> bytes:
    known = declared_api(api)
    flexible = known is not None and known.is_flexible(version)
    return struct.pack(">hhih", api, version, 1, -1) + (b"\0" if flexible else b"")


def tags(count: int) -> bytes:
    """As many empty tagged fields, and their number before them."""
    out = bytearray()
    unsigned_varint(out, count)
    for tag in range(count):
        unsigned_varint(out, tag)
        out.append(0)
    return bytes(out)


HUGE = [
    ("negative frame", struct.pack(">i", -1)),
    ("frame over the limit", struct.pack(">i", 2**31 - 1)),
    ("not a protocol at all", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("TLS hello", bytes.fromhex("16030100c8010000c40303") + bytes(100)),
]


@pytest.mark.parametrize(("what", "data"), HUGE, ids=[what for what, _ in HUGE])
def test_what_is_no_frame_closes_the_connection(broker: Broker, what: str, data: bytes) -> None:
    with RawClient(broker.bootstrap) as client:
        client.sock.sendall(data)
        assert client.is_closed_by_peer()
    assert is_alive(broker.bootstrap)


BODIES = [
    ("unknown api", header(9999, 0)),
    ("unknown version", header(3, 99)),
    ("array of four billion topics, compact", header(3, 12) + b"\xff\xff\xff\xff\x0f"),
    ("array of two billion topics", header(3, 1) + b"\x7f\xff\xff\xff"),
    ("negative array", header(3, 1) + b"\xff\xff\xff\x00"),
    ("string past the end", header(3, 1) + struct.pack(">ih", 1, 5000)),
    ("string that is not UTF-8", header(3, 1) + struct.pack(">ih", 1, 2) + b"\xff\xfe"),
    ("endless varint", header(3, 12) + b"\xff" * 20),
    ("tags out of order", header(3, 12) + b"\x01\x01\x00" + b"\x02\x05\x00\x04\x00"),
    ("tag past the end", header(3, 12) + b"\x01\x01\x00" + b"\x01\x05\xff\xff\x03"),
    ("a tag too many before a good request", header(18, 3)[:-1] + tags(TAGS_MAX + 1) + b"\2a\2b\0"),
    ("million tags", header(3, 12) + b"\x01\x01\x00" + b"\xc0\x84\x3d"),
    ("produce with records past the end", header(0, 9) + b"\x00\x00\x01" + bytes(4) + b"\x02"),
    ("empty body", header(19, 7)),
]


@pytest.mark.parametrize(("what", "body"), BODIES, ids=[what for what, _ in BODIES])
def test_what_does_not_decode_closes_the_connection(broker: Broker, what: str, body: bytes) -> None:
    with RawClient(broker.bootstrap) as client:
        client.send_frame(body)
        assert client.is_closed_by_peer()
    assert is_alive(broker.bootstrap)


def test_a_header_may_have_tags_that_nobody_knows(broker: Broker) -> None:
    with RawClient(broker.bootstrap) as client:
        client.send_frame(header(18, 3)[:-1] + tags(TAGS_MAX) + b"\2a\2b\0")
        assert client.receive_frame()


def test_random_bodies_for_every_api_and_version_never_harm_the_node(broker: Broker) -> None:
    chance = random.Random(7)
    cases = [
        (api.key, version)
        for api in served_apis()
        for version in range(api.min_listed, api.max_version + 1)
    ]
    for key, version in cases:
        for _ in range(3):
            with RawClient(broker.bootstrap, timeout_seconds=0.02) as client:
                client.send_frame(header(key, version) + chance.randbytes(chance.randrange(60)))
                client.is_closed_by_peer()
    assert is_alive(broker.bootstrap)


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_claimed_sizes_and_counts_take_no_memory(tmp_path: Path) -> None:
    with MillstreamNode(tmp_path / "data") as node:
        assert is_alive(node.bootstrap)
        before = resident_bytes(node.pid)
        held = [RawClient(node.bootstrap) for _ in range(50)]
        for client in held:
            # A hundred megabytes announced, a hundred bytes sent.
            client.sock.sendall(struct.pack(">i", 100_000_000) + bytes(100))
        # One byte on the wire for each of two hundred thousand elements.
        body = header(3, 1) + struct.pack(">i", 1_000_000) + bytes(1_000_000)
        with RawClient(node.bootstrap) as client:
            client.send_frame(body)
            assert client.is_closed_by_peer()
        assert is_alive(node.bootstrap)
        assert resident_bytes(node.pid) - before < 64 << 20
        for client in held:
            client.sock.close()


def test_large_frames_that_are_only_announced_keep_nobody_waiting() -> None:
    with Broker(topics={"t": 1}) as running:
        held = [RawClient(running.bootstrap) for _ in range(5)]
        for client in held:
            client.sock.sendall(struct.pack(">i", 100_000_000) + bytes(200_000))
        with RawClient(running.bootstrap) as client:
            for _ in range(20):
                assert produce(client, "t", batch(b"x" * 300_000)).error_code == 0
        for client in held:
            client.sock.close()


def test_pipelined_requests_are_answered_in_order(broker: Broker) -> None:
    with RawClient(broker.bootstrap) as client:
        frames = b""
        for number in range(3000):
            body = struct.pack(">hhihi", 3, 1, number, -1, 0)
            frames += struct.pack(">i", len(body)) + body
        client.sock.sendall(frames)
        for number in range(3000):
            assert client.receive_frame()[:4] == struct.pack(">i", number)


def test_connections_beyond_the_limits_are_refused() -> None:
    settings = {"max.connections": "20", "max.connections.per.ip": "10"}
    with Broker(settings=settings) as running:
        held = [RawClient(running.bootstrap) for _ in range(10)]
        for client in held:
            client.ask(MetadataRequest(topics=[]), 1)
        with RawClient(running.bootstrap) as one_more:
            assert one_more.is_closed_by_peer()
        held.pop().sock.close()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with RawClient(running.bootstrap) as again:
                try:
                    again.ask(MetadataRequest(topics=[]), 1)
                    break
                except ConnectionError:
                    continue
        else:
            pytest.fail("the place of the one that left was not given away")
        for client in held:
            client.sock.close()


def test_some_addresses_have_other_limits() -> None:
    settings = {
        "max.connections.per.ip": "2",
        "max.connections.per.ip.overrides": "127.0.0.7:0, 127.0.0.8:4,localhost:3",
    }

    def admitted(running: Broker, address: str) -> int:
        clients = [
            RawClient(running.bootstrap, source_address=(address, 0), timeout_seconds=20)
            for _ in range(6)
        ]
        closed = [client.is_closed_by_peer() for client in clients[4:]]
        assert all(closed)
        count = 0
        for client in clients:
            try:
                client.ask(MetadataRequest(topics=[]), 1)
                count += 1
            except ConnectionError:
                pass
        for client in clients:
            client.sock.close()
        return count

    with Broker(settings=settings) as running:
        addresses = ("127.0.0.6", "127.0.0.7", "127.0.0.8", "127.0.0.1")
        assert [admitted(running, address) for address in addresses] == [2, 0, 4, 3]


def test_running_out_of_descriptors_refuses_and_recovers(tmp_path: Path) -> None:
    import resource

    with MillstreamNode(tmp_path / "data") as node:
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (64, 64))
        held = []
        for _ in range(100):
            sock = socket.create_connection(node.bootstrap.rsplit(":", 1), timeout=5)
            held.append(sock)
        # As long as all are there: who looks late finds some of them gone.
        wait_until(lambda: "out of file descriptors" in node.log_text, "the node has run out")
        for sock in held:
            sock.close()
        deadline = time.monotonic() + 10
        while True:
            try:
                assert is_alive(node.bootstrap)
                break
            except (ConnectionError, TimeoutError):
                assert time.monotonic() < deadline, "the node did not recover"


def test_clients_never_take_the_last_descriptors(tmp_path: Path) -> None:
    import resource

    with MillstreamNode(tmp_path / "data") as node:
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (256, 256))
        with RawClient(node.bootstrap) as first:
            address = node.bootstrap.rsplit(":", 1)
            held = [socket.create_connection(address, timeout=5) for _ in range(300)]
            topic = CreatableTopic(
                name="t", num_partitions=20, replication_factor=1, assignments=[], configs=[]
            )
            created = first.ask(
                CreateTopicsRequest(topics=[topic], timeout_ms=5000, validate_only=False), 4
            )
            assert created.topics[0].error_code == 0
            assert produce(first, "t", batch(b"x"), acks=-1).error_code == 0
            for sock in held:
                sock.close()
        assert "Too many open files" not in node.log_text
