"""Real clients log in by every mechanism, with credentials made for this run."""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ScramMechanism, UserScramCredentialDeletion
from cryptography.hazmat.primitives.asymmetric import rsa
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaTimeoutError
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

from millstream.client.blocking import Address, Connection
from millstream.client.security import SecurityError, read_security
from millstream.wire.apis.metadata import MetadataRequest
from tests.support.broker import Broker
from tests.support.jars import classpath
from tests.support.java_client import JavaClient, JavaClientError
from tests.support.sasl_node import PASSWORD, PLAIN_USER, SCRAM_USER, librdkafka, sasl_node
from tests.support.tokens import jwk, key_set
from tests.support.tools import require

pytestmark = pytest.mark.slow

ISSUER, AUDIENCE = "https://issuer.test", "kafka"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
WRONG = PASSWORD[:-1] + chr(ord(PASSWORD[-1]) ^ 1)
USERS = {"PLAIN": PLAIN_USER, "SCRAM-SHA-256": SCRAM_USER, "SCRAM-SHA-512": SCRAM_USER}

SendAndRead = Callable[[str, str, str], bytes]


def token(seconds: float = 300, **claims: str) -> str:
    now = time.time()
    content = {"iss": ISSUER, "aud": AUDIENCE, "sub": "olga", "iat": now, "exp": now + seconds}
    return jwt.encode({**content, **claims}, KEY, algorithm="RS256", headers={"kid": "k"})


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text(key_set(jwk(KEY, "k")))
    with sasl_node(
        "PLAIN",
        "SCRAM-SHA-256",
        "SCRAM-SHA-512",
        "OAUTHBEARER",
        sasl__oauthbearer__jwks__endpoint__url=keys.as_uri(),
        sasl__oauthbearer__expected__issuer=ISSUER,
        sasl__oauthbearer__expected__audience=AUDIENCE,
        sasl__oauthbearer__clock__skew__seconds="0",
    ) as running:
        yield running


def with_librdkafka(bootstrap: str, mechanism: str, secret: str) -> bytes:
    """The secret is a password or a token."""
    settings: dict[str, Any]
    if mechanism == "OAUTHBEARER":
        settings = librdkafka(bootstrap, mechanism, "", "")
        del settings["sasl.username"], settings["sasl.password"]
        settings["oauth_cb"] = lambda _: (secret, time.time() + 300)
    else:
        settings = librdkafka(bootstrap, mechanism, USERS[mechanism], secret)
    errors: list[KafkaError] = []
    producer = Producer({**settings, "error_cb": errors.append})
    producer.produce(f"rd-{mechanism}", b"hello")
    deadline = time.monotonic() + 20
    while producer.flush(0.1) and time.monotonic() < deadline:
        for error in errors:
            if error.code() == KafkaError._AUTHENTICATION:
                producer.purge()
                raise KafkaException(error)
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([f"rd-{mechanism}"])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    value = message.value()
    assert value is not None
    return value


class FixedToken(PythonTokenProvider):
    def __init__(self, **configs: Any) -> None:
        super().__init__(**configs)
        self.value = ""

    def token(self) -> str:
        return self.value


def with_kafka_python(bootstrap: str, mechanism: str, secret: str) -> bytes:
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = provider = FixedToken()
        provider.value = secret
    else:
        settings |= {
            "sasl_plain_username": USERS[mechanism],
            "sasl_plain_password": secret,
        }
    producer = KafkaProducer(**settings, max_block_ms=10_000)
    try:
        producer.send(f"py-{mechanism}", b"hello").get(15)
    finally:
        producer.close(timeout=1)
    consumer = KafkaConsumer(
        f"py-{mechanism}",
        **settings,
        auto_offset_reset="earliest",
        consumer_timeout_ms=15_000,
    )
    value: bytes = next(consumer).value
    consumer.close()
    return value


class AsyncToken(AbstractTokenProvider):
    def __init__(self, value: str) -> None:
        self._value = value

    async def token(self) -> str:
        return self._value


def with_aiokafka(bootstrap: str, mechanism: str, secret: str) -> bytes:
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = AsyncToken(secret)
    else:
        settings |= {
            "sasl_plain_username": USERS[mechanism],
            "sasl_plain_password": secret,
        }

    async def run() -> bytes:
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
            await producer.send_and_wait(f"aio-{mechanism}", b"hello")
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(f"aio-{mechanism}", **settings, auto_offset_reset="earliest")
        try:
            await consumer.start()
            value: bytes = (await consumer.getone()).value
        finally:
            await consumer.stop()
        return value

    return asyncio.run(asyncio.wait_for(run(), 30))


def run(command: list[str], stdin: str = "") -> bytes:
    done = subprocess.run(
        command, input=stdin.encode(), capture_output=True, timeout=90, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[-3000:])
    return done.stdout


def with_kcat(bootstrap: str, mechanism: str, secret: str) -> bytes:
    login = {"sasl.username": USERS[mechanism], "sasl.password": secret}
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, **login}
    flags = [part for item in options.items() for part in ("-X", "=".join(item))]
    command = [require("kcat"), "-b", bootstrap, "-t", f"kcat-{mechanism}", *flags]
    run([*command, "-P", "-X", "message.timeout.ms=10000"], "hello")
    return run([*command, "-C", "-q", "-e", "-o", "beginning"]).strip()


def java_config(folder: Path, mechanism: str, secret: str) -> Path:
    """A file with the options of a Java client; a token is in the file `token` beside it."""
    file, config = folder / "token", folder / "java.properties"
    file.write_text(secret)
    login = JAVA_LOGINS[mechanism.partition("-")[0]].format(
        user=USERS.get(mechanism), password=secret, url=file.as_uri()
    )
    config.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n{login}")
    return config


def with_java(bootstrap: str, mechanism: str, secret: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        config = java_config(Path(folder), mechanism, secret)
        file = config.with_name("token")
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={file.as_uri()}"
        files = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={file}"
        tools = [require("java"), "-Xmx256m", allowed, files, "-cp", classpath()]
        topic = f"java-{mechanism}"
        where = ["--bootstrap-server", bootstrap, "--topic", topic, "--command-config", str(config)]
        run([*tools, "org.apache.kafka.tools.ConsoleProducer", *where], "hello\n")
        consumer = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        reading = ["--from-beginning", "--max-messages", "1"]
        return run([*tools, consumer, *where, *reading]).strip()


_MODULES = "org.apache.kafka.common.security"
JAVA_LOGINS = {
    name: f"sasl.jaas.config={_MODULES}.{module} required "
    'username="{user}" password="{password}";\n'
    for name, module in (
        ("PLAIN", "plain.PlainLoginModule"),
        ("SCRAM", "scram.ScramLoginModule"),
    )
} | {
    "OAUTHBEARER": (
        f"sasl.jaas.config={_MODULES}.oauthbearer.OAuthBearerLoginModule required;\n"
        f"sasl.login.callback.handler.class={_MODULES}.oauthbearer."
        "OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.jwt.retriever.class={_MODULES}.oauthbearer.FileJwtRetriever\n"
        "sasl.oauthbearer.token.endpoint.url={url}\n"
    )
}

# Debian builds kcat without the library that fetches tokens.
WITH_TOKENS = [with_librdkafka, with_kafka_python, with_aiokafka, with_java]
CLIENTS = [*WITH_TOKENS, with_kcat]
# kafka-python, below, tries again whatever the error is. aiokafka does not say why.
STRICT = [(with_librdkafka, KafkaException), (with_aiokafka, KafkaConnectionError)]
STRICT_WITH_PASSWORDS = [*STRICT, (with_kcat, RuntimeError)]


@pytest.mark.parametrize("send_and_read", CLIENTS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("mechanism", USERS)
def test_the_right_password_sends_and_reads(
    node: Broker, send_and_read: SendAndRead, mechanism: str
) -> None:
    assert send_and_read(node.bootstrap, mechanism, PASSWORD) == b"hello"


@pytest.mark.parametrize(("send_and_read", "error"), STRICT_WITH_PASSWORDS)
@pytest.mark.parametrize("mechanism", USERS)
def test_a_password_that_is_wrong_by_one_bit_is_refused(
    node: Broker, send_and_read: SendAndRead, error: type[Exception], mechanism: str
) -> None:
    with pytest.raises(error):
        send_and_read(node.bootstrap, mechanism, WRONG)


@pytest.mark.parametrize("mechanism", USERS)
def test_the_java_client_says_that_a_password_is_wrong(
    node: Broker, tmp_path: Path, mechanism: str
) -> None:
    with JavaClient(node.bootstrap, java_config(tmp_path, mechanism, WRONG)) as java:
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(JavaClientError, match="invalid credentials") as caught:
                java.call("topic_names")
            assert caught.value.name == "SaslAuthenticationException"
        # The first call also starts the JVM.
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("mechanism", USERS)
def test_kafka_python_gives_up_with_a_wrong_password(node: Broker, mechanism: str) -> None:
    settings = {
        "bootstrap_servers": node.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USERS[mechanism],
        "sasl_plain_password": WRONG,
        "bootstrap_timeout_ms": 2_000,
    }
    # In a process of its own: a producer that cannot be made leaves its sockets open.
    program = f"import kafka; kafka.KafkaProducer(**{settings!r})"
    with pytest.raises(RuntimeError, match="KafkaTimeoutError: Unable to bootstrap"):
        run([sys.executable, "-c", program])


@pytest.mark.parametrize("send_and_read", WITH_TOKENS, ids=lambda one: one.__name__)
def test_a_token_sends_and_reads(node: Broker, send_and_read: SendAndRead) -> None:
    assert send_and_read(node.bootstrap, "OAUTHBEARER", token()) == b"hello"


@pytest.mark.parametrize(("send_and_read", "error"), STRICT)
@pytest.mark.parametrize("claims", [{"seconds": -1}, {"aud": "another"}], ids=["expired", "other"])
def test_a_token_that_is_expired_or_for_another_is_refused(
    node: Broker, send_and_read: SendAndRead, error: type[Exception], claims: dict[str, Any]
) -> None:
    with pytest.raises(error):
        send_and_read(node.bootstrap, "OAUTHBEARER", token(**claims))


def test_the_java_client_says_that_a_token_is_expired(
    node: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = java_config(tmp_path, "OAUTHBEARER", token(-1))
    file = config.with_name("token")
    permitted = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
    monkeypatch.setenv(
        "JAVA_TOOL_OPTIONS", f"{permitted}.urls={file.as_uri()} {permitted}.files={file}"
    )
    with JavaClient(node.bootstrap, config) as java:
        with pytest.raises(JavaClientError, match="invalid_token") as caught:
            java.call("topic_names")
        assert caught.value.name == "SaslAuthenticationException"


def test_kafka_python_gives_up_with_an_expired_token(node: Broker) -> None:
    program = f"""
import kafka
from kafka.net.sasl.oauth import AbstractTokenProvider
class Expired(AbstractTokenProvider):
    def token(self):
        return {token(-1)!r}
kafka.KafkaProducer(
    bootstrap_servers={node.bootstrap!r},
    security_protocol="SASL_PLAINTEXT",
    sasl_mechanism="OAUTHBEARER",
    sasl_oauth_token_provider=Expired(),
    bootstrap_timeout_ms=2_000,
)
"""
    with pytest.raises(RuntimeError, match="KafkaTimeoutError: Unable to bootstrap"):
        run([sys.executable, "-c", program])


def ours(node: Broker, tmp_path: Path, content: str) -> Connection:
    file = tmp_path / "token"
    file.write_text(content)
    security = read_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        }
    )
    host, _, port = node.bootstrap.rpartition(":")
    return Connection(Address(host, int(port)), client_id="t", security=security)


def test_our_client_uses_a_token_until_it_expires(node: Broker, tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match="invalid_token"):
        ours(node, tmp_path, token(-1))
    connection = ours(node, tmp_path, token(3))
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    assert connection.ask(request, 9).brokers
    time.sleep(3.1)
    with pytest.raises(ConnectionError):
        connection.ask(request, 9)
    connection.close()


def delete_user(own: Broker) -> None:
    """Of SCRAM-SHA-256: it can still log in by the other."""
    admin = AdminClient(librdkafka(own.bootstrap, "SCRAM-SHA-512", SCRAM_USER, PASSWORD))
    deletion = UserScramCredentialDeletion(SCRAM_USER, ScramMechanism.SCRAM_SHA_256)
    for done in admin.alter_user_scram_credentials([deletion]).values():
        done.result(20)


def test_a_java_client_whose_user_is_deleted_learns_it_within_seconds(tmp_path: Path) -> None:
    with (
        sasl_node() as own,
        JavaClient(own.bootstrap, java_config(tmp_path, "SCRAM-SHA-256", PASSWORD)) as java,
    ):
        java.call("topic_names")
        delete_user(own)
        deadline = time.monotonic() + 10
        with pytest.raises(JavaClientError, match="invalid credentials") as caught:
            while time.monotonic() < deadline:
                java.call("topic_names")
        assert caught.value.name == "SaslAuthenticationException"


def test_a_consumer_whose_user_is_deleted_learns_it_within_seconds() -> None:
    mechanism = "SCRAM-SHA-256"
    with sasl_node() as own:
        settings = librdkafka(own.bootstrap, mechanism, SCRAM_USER, PASSWORD)
        Producer(settings).produce("t", b"x")
        errors: list[KafkaError] = []
        consumer = Consumer({**settings, "group.id": "g", "error_cb": errors.append})
        consumer.subscribe(["t"])
        consumer.poll(2)
        delete_user(own)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            consumer.poll(0.1)
            if any(error.code() == KafkaError._AUTHENTICATION for error in errors):
                break
        assert any(error.code() == KafkaError._AUTHENTICATION for error in errors)
        consumer.close()


LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_plain_username": SCRAM_USER,
    "sasl_plain_password": PASSWORD,
}
# After this, a client whose user was deleted must not be able to send.
_GRACE_SECONDS = 10.0


def test_a_kafka_python_client_whose_user_is_deleted_sends_no_more() -> None:
    with sasl_node() as own:
        producer = KafkaProducer(
            bootstrap_servers=own.bootstrap,
            **LOGIN,
            delivery_timeout_ms=3_000,
            request_timeout_ms=2_000,
            linger_ms=0,
        )
        producer.send("t", b"before").get(20)
        delete_user(own)
        deadline = time.monotonic() + _GRACE_SECONDS
        with pytest.raises(KafkaTimeoutError):
            while time.monotonic() < deadline:
                producer.send("t", b"after").get(20)
        producer.close(timeout=1)


def test_an_aiokafka_client_whose_user_is_deleted_sends_no_more() -> None:
    async def run(own: Broker) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=own.bootstrap, **LOGIN, request_timeout_ms=3_000
        )
        await producer.start()
        try:
            await producer.send_and_wait("t", b"before")
            await asyncio.to_thread(delete_user, own)
            deadline = time.monotonic() + _GRACE_SECONDS
            with pytest.raises(AioKafkaError):
                while time.monotonic() < deadline:
                    await producer.send_and_wait("t", b"after")
        finally:
            await producer.stop()

    with sasl_node() as own:
        asyncio.run(asyncio.wait_for(run(own), 60))


def test_kcat_whose_user_is_deleted_ends() -> None:
    with sasl_node() as own:
        producer = Producer(librdkafka(own.bootstrap, "SCRAM-SHA-512", SCRAM_USER, PASSWORD))
        producer.produce("t", b"before")
        assert producer.flush(20) == 0
        login = {"sasl.username": SCRAM_USER, "sasl.password": PASSWORD}
        options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
        flags = [part for item in (options | login).items() for part in ("-X", "=".join(item))]
        command = [require("kcat"), "-b", own.bootstrap, "-C", "-t", "t", "-u", *flags]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as kcat:
            assert kcat.stdout is not None
            assert kcat.stdout.readline() == "before\n"
            delete_user(own)
            # It does not try to log in again when its only broker has closed the connection.
            _, said = kcat.communicate(timeout=30)
        assert kcat.returncode == 1
        assert "All broker connections are down" in said
