"""TLS and SASL of the blocking client, against brokers that insist on them: Apache Kafka's.

Covers client, spark.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType

from millstream.spark.failure import SourceError
from millstream.spark.option_table import Use
from millstream.spark.options import parse_read_options
from millstream.spark.reader import BatchReader
from millstream.spark.source import batch_writer
from tests.support.apache_kafka import ApacheKafka
from tests.support.tools import require, run_checked, skip_if_java_is_left_out

pytestmark = [pytest.mark.slow, pytest.mark.java]

VALUE = StructType([StructField("value", StringType())])
PASSWORD = 'a "quoted", \\ pass=word'
LISTENERS = {"TLS": "SSL", "PLAIN": "SASL_PLAINTEXT", "SCRAM": "SASL_SSL"}
JAAS = "org.apache.kafka.common.security"


def make_certificates(folder: Path) -> None:
    """An authority, and one certificate by it for broker and client; PEM, key in PKCS 8."""
    openssl = require("openssl")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")

    def run(*arguments: str) -> None:
        run_checked([openssl, *arguments], timeout_seconds=30)

    new = ["req", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    ca, ca_key = str(folder / "ca.pem"), str(folder / "ca.key")
    run(*new, "-x509", "-subj", "/CN=authority", "-keyout", ca_key, "-out", ca)
    key, asked = str(folder / "own.key"), str(folder / "own.csr")
    run("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=own", "-keyout", key, "-out", asked)
    signed = str(folder / "own.crt")
    run(
        *("x509", "-req", "-in", asked, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial"),
        *("-days", "2", "-extfile", str(folder / "names"), "-out", signed),
    )
    both = Path(key).read_text() + Path(signed).read_text()
    (folder / "own.pem").write_text(both)


def quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def in_a_properties_file(text: str) -> str:
    return text.replace("\\", "\\\\")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def kafka_with_locks(
    certificates: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheKafka]:
    skip_if_java_is_left_out()
    plain = f'{JAAS}.plain.PlainLoginModule required user_alice="{quoted(PASSWORD)}";'
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates / "own.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates / "ca.pem"),
        "listener.name.tls.ssl.client.auth": "required",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": in_a_properties_file(plain),
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.scram.scram-sha-256.sasl.jaas.config": (
            f"{JAAS}.scram.ScramLoginModule required;"
        ),
        "listener.name.scram.scram-sha-512.sasl.jaas.config": (
            f"{JAAS}.scram.ScramLoginModule required;"
        ),
    }
    folder = tmp_path_factory.mktemp("kafka") / "data"
    with ApacheKafka(folder, settings=settings, listeners=LISTENERS) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            credential = ScramCredentialInfo(mechanism, 4096)
            wanted = UserScramCredentialUpsertion("bo,b=", credential, PASSWORD.encode())
            admin.alter_user_scram_credentials([wanted])["bo,b="].result(30)
        yield kafka


def log_in(username: str, password: str = PASSWORD) -> str:
    return f'ScramLoginModule required username="{username}" password="{quoted(password)}";'


@pytest.fixture(
    params=["TLS", "TLS from text", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"],
)
def way_in(
    request: pytest.FixtureRequest, kafka_with_locks: ApacheKafka, certificates: Path
) -> dict[str, str]:
    """The options of one way to be let in."""
    trusted = {
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(certificates / "ca.pem"),
    }
    addresses = kafka_with_locks.addresses
    if request.param == "TLS":
        return {
            "kafka.bootstrap.servers": addresses["TLS"],
            "kafka.security.protocol": "SSL",
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.location": str(certificates / "own.pem"),
            **trusted,
        }
    if request.param == "TLS from text":
        return {
            "kafka.bootstrap.servers": addresses["TLS"],
            "kafka.security.protocol": "SSL",
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.certificate.chain": (certificates / "own.crt").read_text(),
            "kafka.ssl.keystore.key": (certificates / "own.key").read_text(),
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.certificates": (certificates / "ca.pem").read_text(),
        }
    if request.param == "PLAIN":
        return {
            "kafka.bootstrap.servers": addresses["PLAIN"],
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": log_in("alice"),
        }
    return {
        "kafka.bootstrap.servers": addresses["SCRAM"],
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": request.param,
        "kafka.sasl.jaas.config": log_in("bo,b="),
        **trusted,
    }


def read(options: dict[str, str]) -> list[bytes]:
    given = CaseInsensitiveDict({**options, "subscribe": "t"})
    source = BatchReader(parse_read_options(given, Use.BATCH_READ))
    return [
        value
        for partition in source.partitions()
        for batch in source.read(partition)
        for value in batch.column("value").to_pylist()
    ]


def write(options: dict[str, str], *texts: str) -> None:
    given = CaseInsensitiveDict({**options, "topic": "t"})
    rows = pa.record_batch({"value": pa.array(texts, pa.string())})
    batch_writer(given, VALUE, overwrite=False).write(iter([rows]))


def test_rows_are_written_and_read(way_in: dict[str, str]) -> None:
    before = read(way_in)
    # More than one TLS record and more than one request.
    write(way_in, *(f"{number:01000d}" for number in range(3000)))
    assert [int(value) for value in read(way_in)[len(before) :]] == list(range(3000))


@pytest.mark.parametrize(
    ("listener", "protocol", "mechanism", "user", "named"),
    [
        ("PLAIN", "SASL_PLAINTEXT", "PLAIN", "alice", "kafka.sasl.jaas.config"),
        ("SCRAM", "SASL_SSL", "SCRAM-SHA-512", "bo,b=", "kafka.sasl.jaas.config"),
        ("SCRAM", "SASL_SSL", "SCRAM-SHA-256", "nobody", "kafka.sasl.jaas.config"),
        ("PLAIN", "SASL_PLAINTEXT", "SCRAM-SHA-256", "alice", "kafka.sasl.mechanism"),
    ],
)
def test_who_is_not_let_in_is_told_at_once_and_by_which_option(
    kafka_with_locks: ApacheKafka,
    certificates: Path,
    listener: str,
    protocol: str,
    mechanism: str,
    user: str,
    named: str,
) -> None:
    options = {
        "kafka.bootstrap.servers": kafka_with_locks.addresses[listener],
        "kafka.security.protocol": protocol,
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": log_in(user, "wrong"),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(certificates / "ca.pem"),
    }
    with pytest.raises(SourceError, match=named):
        read(options)


def test_a_broker_that_is_not_trusted_or_a_client_without_a_certificate_is_refused(
    kafka_with_locks: ApacheKafka, certificates: Path
) -> None:
    options = {
        "kafka.bootstrap.servers": kafka_with_locks.addresses["TLS"],
        "kafka.security.protocol": "SSL",
    }
    with pytest.raises(SourceError, match=r"kafka\.ssl\.truststore\.location"):
        read(options)
    trusted = {
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(certificates / "ca.pem"),
    }
    with pytest.raises(SourceError, match=r"kafka\.ssl\.keystore\.location"):
        # Where it is only a closed connection, it might pass, and is tried for a while.
        read({**options, **trusted, "kafka.default.api.timeout.ms": "2000"})
    for name, value, text in (
        ("truststore", "missing.pem", r"truststore\.location.*No such file"),
        ("keystore", "ca.pem", r"keystore\.location"),
    ):
        broken = {**options, **trusted, f"kafka.ssl.{name}.type": "PEM"}
        broken[f"kafka.ssl.{name}.location"] = str(certificates / value)
        with pytest.raises(SourceError, match=text):
            read(broken)


def test_a_listener_with_another_protocol_is_named(kafka_with_locks: ApacheKafka) -> None:
    def read_from(address: str, protocol: str) -> None:
        read(
            {
                "kafka.bootstrap.servers": address,
                "kafka.security.protocol": protocol,
                "kafka.default.api.timeout.ms": "2000",
            }
        )

    with pytest.raises(SourceError, match=r"kafka\.security\.protocol"):
        read_from(kafka_with_locks.addresses["TLS"], "PLAINTEXT")
    with pytest.raises(SourceError, match=r"kafka\.security\.protocol"):
        read_from(kafka_with_locks.addresses["PLAIN"], "PLAINTEXT")
    with pytest.raises(SourceError, match=r"NO_TLS_THERE|NO_ANSWER"):
        read_from(kafka_with_locks.bootstrap, "SSL")
