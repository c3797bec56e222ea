"""A node with TLS as users run it: clients, versions, and certificates that change meanwhile."""

import asyncio
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from millstream.broker.security.certificates import ListenerIdentity
from millstream.config import load_config, parse_listeners
from millstream.model import ANONYMOUS
from millstream.security.certificate_authority import issue, read_certificates
from millstream.security.tls import Store, client_context
from tests.support.certificates import LOCAL, Certificates
from tests.support.node import MillstreamNode

SECONDS_MAX = 60
LARGE = 2_500_000


def node_with_tls(folder: Path, certificates: Certificates, *sets: str) -> MillstreamNode:
    settings = (
        f"ssl.keystore.location={certificates.server}",
        f"ssl.truststore.location={certificates.ca}",
        f"message.max.bytes={2 * LARGE}",
        *sets,
    )
    options = [part for setting in settings for part in ("--set", setting)]
    return MillstreamNode(folder / "data", "--dev", *options, protocol="SSL")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def node(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MillstreamNode]:
    folder = tmp_path_factory.mktemp("node")
    with node_with_tls(folder, certificates, "ssl.client.auth=requested") as node:
        yield node


def port_of(node: MillstreamNode) -> int:
    return int(node.bootstrap.rpartition(":")[2])


def serial_shown(node: MillstreamNode) -> int:
    pem = ssl.get_server_certificate(("127.0.0.1", port_of(node)), timeout=SECONDS_MAX)
    return read_certificates(pem.encode())[0].serial


def serial_in(path: Path) -> int:
    return read_certificates(path.read_bytes())[0].serial


def until(is_true: Callable[[], bool], what: str) -> None:
    ends_at = time.monotonic() + SECONDS_MAX
    while not is_true():
        assert time.monotonic() < ends_at, what
        time.sleep(0.05)


class RawClient:
    """Asks for versions over one connection, again and again."""

    def __init__(self, node: MillstreamNode, certificates: Certificates) -> None:
        trust = Store("ssl.truststore", str(certificates.ca))
        context = client_context(Store("ssl.keystore"), trust)
        plain = socket.create_connection(("127.0.0.1", port_of(node)), timeout=SECONDS_MAX)
        self.sock = context.wrap_socket(plain, server_hostname="localhost")

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *raised: object) -> None:
        self.sock.close()

    def ask(self) -> None:
        self.sock.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
        size, correlation_id = struct.unpack(">ii", self._receive(8))
        assert correlation_id == 7
        self._receive(size - 4)

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.sock.recv(count - len(data))
            assert part, "the node closed the connection"
            data += part
        return data


def confluent_options(
    node: MillstreamNode, certificates: Certificates, keystore: Path | None
) -> dict[str, str | int]:
    options: dict[str, str | int] = {
        "bootstrap.servers": node.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(certificates.ca),
        "message.max.bytes": 2 * LARGE,
    }
    if keystore is not None:
        options |= {"ssl.certificate.location": str(keystore), "ssl.key.location": str(keystore)}
    return options


@pytest.mark.parametrize("has_certificate", [False, True])
def test_confluent_kafka_produces_and_consumes(
    node: MillstreamNode, certificates: Certificates, has_certificate: bool
) -> None:
    keystore = certificates.issue("alice") if has_certificate else None
    options = confluent_options(node, certificates, keystore)
    topic = f"confluent-{has_certificate}"
    values = [b"small", b"l" * LARGE, b"m" * LARGE, b"last"]
    producer = Producer(options)
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(SECONDS_MAX) == 0
    consumer = Consumer({**options, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        found = []
        while len(found) < len(values):
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            assert message.error() is None
            found.append(message.value())
    finally:
        consumer.close()
    assert found == values


@pytest.mark.parametrize("has_certificate", [False, True])
def test_aiokafka_produces_and_consumes(
    node: MillstreamNode, certificates: Certificates, has_certificate: bool
) -> None:
    context = ssl.create_default_context(cafile=certificates.ca)
    if has_certificate:
        context.load_cert_chain(certificates.issue("bob"))
    topic = f"aiokafka-{has_certificate}"

    async def go() -> list[bytes]:
        secured = {"security_protocol": "SSL", "ssl_context": context}
        async with AIOKafkaProducer(bootstrap_servers=node.bootstrap, **secured) as producer:
            for number in range(10):
                await producer.send_and_wait(topic, b"%d" % number)
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=node.bootstrap, auto_offset_reset="earliest", **secured
        )
        async with consumer:
            return [(await consumer.getone()).value for _ in range(10)]

    found = asyncio.run(asyncio.wait_for(go(), SECONDS_MAX))
    assert found == [b"%d" % number for number in range(10)]


def test_clients_without_a_certificate_are_refused_where_one_is_required(
    certificates: Certificates, tmp_path: Path
) -> None:
    with node_with_tls(tmp_path, certificates, "ssl.client.auth=required") as node:
        options = confluent_options(node, certificates, None)
        with pytest.raises(Exception, match=r"_TRANSPORT|_ALL_BROKERS_DOWN|_SSL"):
            AdminClient({**options, "log_level": 0}).list_topics(timeout=3)
        options = confluent_options(node, certificates, certificates.issue("alice"))
        assert AdminClient(options).list_topics(timeout=SECONDS_MAX).brokers
        assert "peer did not return a certificate" in node.log_text


def is_served(node: MillstreamNode, certificates: Certificates, keystore: Path) -> bool:
    trust = Store("ssl.truststore", str(certificates.ca))
    context = client_context(Store("ssl.keystore", str(keystore)), trust)
    plain = socket.create_connection(("127.0.0.1", port_of(node)), timeout=SECONDS_MAX)
    try:
        with context.wrap_socket(plain, server_hostname="localhost") as sock:
            # In TLS 1.3 a client hears of a refusal when it reads.
            sock.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
            return sock.recv(1) != b""
    except (ssl.SSLError, ConnectionError):
        return False


def write_keystore(path: Path, key: bytes, certificate: bytes) -> Path:
    path.write_bytes(key + certificate)
    return path


def test_a_certificate_that_is_expired_or_wrong_by_one_bit_is_refused(
    certificates: Certificates, tmp_path: Path
) -> None:
    good = certificates.make("alice")
    two_days_ago = datetime.now(UTC) - timedelta(days=2)
    old = issue(certificates.authority, "alice", hosts=(), now=two_days_ago, days=1)
    der = bytearray(ssl.PEM_cert_to_DER_cert(good.certificate.decode()))
    # The end of the signature.
    der[-1] ^= 1
    flipped = ssl.DER_cert_to_PEM_cert(bytes(der)).encode()
    right = write_keystore(tmp_path / "right.pem", good.key, good.certificate)
    wrong = write_keystore(tmp_path / "wrong.pem", good.key, flipped)
    expired = write_keystore(tmp_path / "expired.pem", old.key, old.certificate)
    with node_with_tls(tmp_path, certificates, "ssl.client.auth=required") as node:
        assert is_served(node, certificates, right)
        assert not is_served(node, certificates, expired)
        until(lambda: "certificate verify failed" in node.log_text, "the reason is not logged")
        assert not is_served(node, certificates, wrong)
        assert is_served(node, certificates, right)


@pytest.mark.parametrize(
    ("version", "is_accepted"), [("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)]
)
def test_openssl_connects_with_current_versions_only(
    node: MillstreamNode, version: str, is_accepted: bool
) -> None:
    done = subprocess.run(
        [
            *("openssl", "s_client", "-connect", node.bootstrap, version),
            # Without this, OpenSSL does not even try TLS 1.1.
            *("-cipher", "DEFAULT@SECLEVEL=0"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    if is_accepted:
        assert f"New, {version[1:].upper().replace('TLS', 'TLSv').replace('_', '.')}" in done.stdout
    else:
        assert "alert protocol version" in done.stderr


def test_a_new_certificate_serves_new_connections_and_old_ones_go_on(
    certificates: Certificates, tmp_path: Path
) -> None:
    with node_with_tls(tmp_path, certificates) as node:
        old = serial_in(certificates.server)
        assert serial_shown(node) == old
        with RawClient(node, certificates) as before:
            before.ask()
            certificates.issue("server", hosts=LOCAL)
            new = serial_in(certificates.server)
            assert new != old
            until(lambda: serial_shown(node) == new, "the new certificate is not shown")
            before.ask()
            with RawClient(node, certificates) as after:
                after.ask()


def test_a_broken_file_is_logged_and_the_certificate_before_it_stays(
    certificates: Certificates, tmp_path: Path
) -> None:
    with node_with_tls(tmp_path, certificates) as node:
        old = serial_shown(node)
        certificates.server.write_bytes(b"no certificate")
        until(lambda: "the old certificate stays in use" in node.log_text, "nothing was logged")
        assert serial_shown(node) == old
        certificates.issue("server", hosts=LOCAL)
        new = serial_in(certificates.server)
        until(lambda: serial_shown(node) == new, "the next certificate is not shown")


def test_another_keystore_is_set_while_the_node_runs(
    certificates: Certificates, tmp_path: Path
) -> None:
    with node_with_tls(tmp_path, certificates) as node:
        other = certificates.issue("other", hosts=LOCAL)
        admin = AdminClient(confluent_options(node, certificates, None))
        entry = ConfigEntry(
            "listener.name.ssl.ssl.keystore.location",
            str(other),
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(SECONDS_MAX)
        until(lambda: serial_shown(node) == serial_in(other), "the other keystore is not used")
        asked = ConfigResource(ResourceType.BROKER, "1")
        [described] = [
            done.result(SECONDS_MAX) for done in admin.describe_configs([asked]).values()
        ]
        assert described["listener.name.ssl.ssl.keystore.location"].value == str(other)
        assert described["ssl.keystore.location"].value == str(certificates.server)


def test_a_node_without_a_usable_key_does_not_start(
    certificates: Certificates, tmp_path: Path
) -> None:
    node = MillstreamNode(
        tmp_path / "data", "--set", "ssl.keystore.location=/no/such.pem", protocol="SSL"
    )
    with pytest.raises(AssertionError, match=r"listener SSL: .*No such file"):
        node.start()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("setting", "verify_mode"),
    [
        ("ssl.client.auth=required", ssl.CERT_NONE),
        ("listener.name.sasl_ssl.ssl.client.auth=required", ssl.CERT_REQUIRED),
    ],
)
def test_clients_that_log_in_need_a_certificate_only_where_their_listener_says_so(
    certificates: Certificates, setting: str, verify_mode: ssl.VerifyMode
) -> None:
    config = load_config(
        sets=[
            "listeners=SASL_SSL://127.0.0.1:0",
            f"ssl.keystore.location={certificates.server}",
            f"ssl.truststore.location={certificates.ca}",
            setting,
        ]
    )
    (listener,) = parse_listeners(config)
    identity = ListenerIdentity(listener, config)
    assert identity.context().verify_mode is verify_mode
    assert identity.principal(None) == ANONYMOUS
