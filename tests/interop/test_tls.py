"""Other people's clients over TLS, without and with a certificate of their own.

confluent-kafka and aiokafka are in tests/broker/security/test_certificates.py.
"""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from tests.support.certificates import Certificates
from tests.support.jars import classpath
from tests.support.node import MillstreamNode
from tests.support.tools import require

SECONDS_MAX = 90
VALUES = ["first", "second", "x" * 300_000]

# Writes and reads a topic at an address; the last argument is a client's own key, or None.
RoundTrip = Callable[[str, str, Certificates, Path | None], list[str]]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=["requested", "required"])
def node(
    request: pytest.FixtureRequest,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MillstreamNode]:
    settings = (
        f"ssl.keystore.location={certificates.server}",
        f"ssl.truststore.location={certificates.ca}",
        f"ssl.client.auth={request.param}",
    )
    options = [part for setting in settings for part in ("--set", setting)]
    folder = tmp_path_factory.mktemp("node")
    with MillstreamNode(folder / "data", "--dev", *options, protocol="SSL") as node:
        yield node


@pytest.fixture
def own_key(node: MillstreamNode, certificates: Certificates, request: pytest.FixtureRequest):
    """The client has one where the node wants one."""
    is_required = request.node.callspec.params["node"] == "required"
    return certificates.issue("client") if is_required else None


def run(command: list[str], stdin: str = "") -> str:
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def kafka_python(
    bootstrap: str, topic: str, certificates: Certificates, key: Path | None
) -> list[str]:
    secured = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(certificates.ca),
        "ssl_certfile": None if key is None else str(key),
        "ssl_keyfile": None if key is None else str(key),
    }
    producer = KafkaProducer(**secured)
    for value in VALUES:
        producer.send(topic, value.encode()).get(SECONDS_MAX)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=SECONDS_MAX * 1000,
        **secured,
    )
    found = [next(consumer).value.decode() for _ in VALUES]
    consumer.close()
    return found


def kcat(bootstrap: str, topic: str, certificates: Certificates, key: Path | None) -> list[str]:
    options = ["security.protocol=SSL", f"ssl.ca.location={certificates.ca}"]
    if key is not None:
        options += [f"ssl.certificate.location={key}", f"ssl.key.location={key}"]
    flags = [part for option in options for part in ("-X", option)]
    command = [require("kcat"), "-b", bootstrap, "-t", topic, *flags]
    run([*command, "-P"], "\n".join(VALUES))
    output = run([*command, "-C", "-q", "-o", "beginning", "-c", str(len(VALUES))])
    return output.splitlines()


def java(bootstrap: str, topic: str, certificates: Certificates, key: Path | None) -> list[str]:
    lines = [
        "security.protocol=SSL",
        f"ssl.truststore.location={certificates.ca}",
        "ssl.truststore.type=PEM",
    ]
    if key is not None:
        lines += [f"ssl.keystore.location={key}", "ssl.keystore.type=PEM"]
    config = certificates.folder / "java.properties"
    config.write_text("\n".join(lines))
    tools = [require("java"), "-Xmx256m", "-cp", classpath()]
    where = ["--bootstrap-server", bootstrap, "--topic", topic, "--command-config", str(config)]
    run([*tools, "org.apache.kafka.tools.ConsoleProducer", *where], "\n".join(VALUES))
    reading = ["--from-beginning", "--max-messages", str(len(VALUES))]
    consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    return run([*tools, consumer, *where, *reading]).splitlines()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("round_trip", [kafka_python, kcat, java])
def test_a_client_writes_and_reads_over_tls(
    node: MillstreamNode, certificates: Certificates, own_key: Path | None, round_trip: RoundTrip
) -> None:
    topic = round_trip.__name__
    found = round_trip(node.bootstrap, topic, certificates, own_key)
    assert [line for line in found if line in VALUES] == VALUES
