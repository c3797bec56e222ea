"""Two thousand connections that try to get in, all at once, while a good client works.

Covers broker/security/authentication.py, broker/network/tls_connection.py.
"""

import asyncio
import itertools
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from millstream.broker.requests.routes import served_apis
from millstream.client.protocol import Dialogue, read_answer
from millstream.errors import KafkaCode
from millstream.wire.apis.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from millstream.wire.apis.sasl_handshake import SaslHandshakeRequest
from millstream.wire.cursor import Cursor
from millstream.wire.message import Request
from tests.support.certificates import Certificates
from tests.support.node import MillstreamNode
from tests.support.ports import reserve_port
from tests.support.raw_client import RawClient
from tests.support.sasl_node import (
    PASSWORD,
    SCRAM_USER,
    choose,
    sasl_settings,
    scram_final,
    step,
)

STRANGERS = 2_000
RENEGOTIATING = 8
SECONDS_MAX = 100
# A client's longest wait; the machine may be busy with other tests.
WAIT_SECONDS_MAX = 20
MECHANISM = "SCRAM-SHA-256"
FIRST_BARE = f"n={SCRAM_USER},r=fyko".encode()
FOR_STRANGERS = ("api_versions", "sasl_handshake", "sasl_authenticate")
REFUSED, CLOSED = "refused", "closed"


@dataclass(frozen=True)
class Ports:
    tls: int
    plain: int


class Stranger:
    """A connection to the listener without TLS, or one that does not get as far as TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._dialogue = Dialogue("stranger")

    async def choose(self) -> None:
        version = 1
        answer = await self._ask(SaslHandshakeRequest(mechanism=MECHANISM), version)
        assert read_answer(SaslHandshakeRequest, version, answer).error_code == 0

    async def step(self, message: bytes) -> SaslAuthenticateResponse:
        answer = await self._ask(SaslAuthenticateRequest(auth_bytes=message), 1)
        return read_answer(SaslAuthenticateRequest, 1, answer)

    async def _ask(self, request: Request, version: int) -> Cursor:  # type: ignore[type-arg]
        self._writer.write(self._dialogue.frame(request, version))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        return Cursor(memoryview(await self._reader.readexactly(size)), 4)

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def refusal(self, message: bytes) -> str:
        answer = await self.step(message)
        assert answer.error_code == KafkaCode.SASL_AUTHENTICATION_FAILED
        await self.end()
        return REFUSED

    async def end(self) -> str:
        """Raises AssertionError if the node says anything more."""
        try:
            left = await self._reader.read()
        except ConnectionError:
            left = b""
        assert left == b"", left
        return CLOSED

    def close(self) -> None:
        self._writer.close()


async def alter_the_nonce(stranger: Stranger, number: int) -> str:
    await stranger.choose()
    first = bytes((await stranger.step(b"n,," + FIRST_BARE)).auth_bytes)
    nonce = first.split(b",")[0].removeprefix(b"r=")
    altered = nonce[:-1] + (b"A" if nonce[-1:] != b"A" else b"B")
    return await stranger.refusal(
        scram_final(FIRST_BARE, first, PASSWORD, MECHANISM, nonce=altered)
    )


def replay(recorded: bytes) -> "Habit":
    async def habit(stranger: Stranger, number: int) -> str:
        await stranger.choose()
        assert (await stranger.step(b"n,," + FIRST_BARE)).error_code == 0
        return await stranger.refusal(recorded)

    return habit


async def name_another(stranger: Stranger, number: int) -> str:
    await stranger.choose()
    return await stranger.refusal(b"n,a=admin," + FIRST_BARE)


async def guess_the_password(stranger: Stranger, number: int) -> str:
    await stranger.choose()
    first = bytes((await stranger.step(b"n,," + FIRST_BARE)).auth_bytes)
    return await stranger.refusal(scram_final(FIRST_BARE, first, f"guess {number}", MECHANISM))


APIS = [api for api in served_apis() if api.name not in FOR_STRANGERS]


async def ask_without_a_login(stranger: Stranger, number: int) -> str:
    api = APIS[number % len(APIS)]
    body = struct.pack(">hhih", api.key, api.max_version, 7, -1) + bytes(64)
    stranger.send(struct.pack(">i", len(body)) + body)
    return await stranger.end()


async def stop_in_the_middle(stranger: Stranger, number: int) -> str:
    await stranger.choose()
    assert (await stranger.step(b"n,," + FIRST_BARE)).error_code == 0
    return await stranger.end()


async def say_nothing(stranger: Stranger, number: int) -> str:
    return await stranger.end()


async def send_half_a_frame(stranger: Stranger, number: int) -> str:
    stranger.send(struct.pack(">i", 1000) + bytes(number % 900))
    return await stranger.end()


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HELLO = client_hello()


async def never_finish_tls(stranger: Stranger, number: int) -> str:
    """Nothing, or a part of the first flight."""
    stranger.send(HELLO[: number % len(HELLO)])
    return await stranger.end()


Habit = Callable[[Stranger, int], Awaitable[str]]


async def besiege(ports: Ports, recorded: bytes) -> Counter[tuple[str, str]]:
    """All connect, then all begin; how each ended, by habit."""
    without_tls: list[tuple[str, Habit]] = [
        ("altered nonce", alter_the_nonce),
        ("replayed final", replay(recorded)),
        ("other authzid", name_another),
        ("wrong password", guess_the_password),
        ("no login", ask_without_a_login),
        ("half a login", stop_in_the_middle),
        ("silence", say_nothing),
        ("half a frame", send_half_a_frame),
    ]
    habits = [(name, habit, ports.plain) for name, habit in without_tls]
    habits += [("half a TLS handshake", never_finish_tls, ports.tls)] * 2
    chosen = list(itertools.islice(itertools.cycle(habits), STRANGERS))
    crowd = [Stranger(*await asyncio.open_connection("127.0.0.1", port)) for _, _, port in chosen]
    ends = asyncio.gather(
        *(
            habit(stranger, number)
            for number, (stranger, (_, habit, _)) in enumerate(zip(crowd, chosen, strict=True))
        )
    )
    renegotiations = asyncio.gather(*(renegotiate(ports.tls) for _ in range(RENEGOTIATING)))
    outcomes = Counter((name, end) for (name, _, _), end in zip(chosen, await ends, strict=True))
    outcomes.update(("renegotiation", end) for end in await renegotiations)
    for stranger in crowd:
        stranger.close()
    return outcomes


async def renegotiate(port: int) -> str:
    process = await asyncio.create_subprocess_exec(
        *("openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_2"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        output = b""
        while b"Verify return code" not in output:
            part = await process.stdout.read(4096)
            assert part, output
            output += part
        process.stdin.write(b"R\n")
        output += (await process.communicate())[0]
    finally:
        if process.returncode is None:
            process.kill()
    return REFUSED if b"no renegotiation" in output else output.decode(errors="replace")


class GoodClient:
    """Sends a record, reads it, and sends the next; notes how long each took."""

    def __init__(self, options: dict[str, str]) -> None:
        self.waits: list[float] = []
        self.problems: list[str] = []
        self._stop = threading.Event()
        self._producer = Producer({**options, "linger.ms": "0"})
        self._consumer = Consumer({**options, "group.id": "good", "auto.offset.reset": "earliest"})
        self._consumer.subscribe(["good"])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            value = str(len(self.waits)).encode()
            self._producer.produce("good", value, on_delivery=self._delivered)
            self._producer.flush(WAIT_SECONDS_MAX)
            found = self._consumer.poll(WAIT_SECONDS_MAX)
            if found is None or found.error() or found.value() != value:
                self.problems.append(f"{value!r} was not read: {found and found.error()}")
                return
            self.waits.append(time.monotonic() - began)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.problems.append(str(error))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(2 * WAIT_SECONDS_MAX)
        self._consumer.close()


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


@pytest.fixture
def ports(tmp_path: Path, certificates: Certificates) -> Iterator[Ports]:
    found = Ports(reserve_port(), reserve_port())
    settings = {
        **sasl_settings(MECHANISM),
        "ssl.keystore.location": str(certificates.server),
        "listeners": f"SASL_SSL://127.0.0.1:{found.tls},SASL_PLAINTEXT://127.0.0.1:{found.plain}",
    }
    config = tmp_path / "server.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    options = ("--dev", "--config", str(config), "--set", f"listeners={settings['listeners']}")
    with MillstreamNode(tmp_path / "data", *options, protocol="SASL_SSL"):
        yield found


def recorded_final(port: int) -> bytes:
    """The last message of a login that succeeded."""
    with RawClient(f"127.0.0.1:{port}") as client:
        assert choose(client, MECHANISM) == 0
        first = bytes(step(client, b"n,," + FIRST_BARE).auth_bytes)
        final = scram_final(FIRST_BARE, first, PASSWORD, MECHANISM)
        assert step(client, final).error_code == 0
    return final


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 60)
def test_two_thousand_strangers_get_nowhere_and_disturb_nobody(
    ports: Ports, certificates: Certificates
) -> None:
    recorded = recorded_final(ports.plain)
    options = {
        "bootstrap.servers": f"127.0.0.1:{ports.tls}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(certificates.ca),
        "sasl.mechanism": MECHANISM,
        "sasl.username": SCRAM_USER,
        "sasl.password": PASSWORD,
    }
    good = GoodClient(options)
    outcomes = asyncio.run(asyncio.wait_for(besiege(ports, recorded), SECONDS_MAX))
    good.stop()
    each = STRANGERS // 10
    assert outcomes == {
        ("altered nonce", REFUSED): each,
        ("replayed final", REFUSED): each,
        ("other authzid", REFUSED): each,
        ("wrong password", REFUSED): each,
        ("no login", CLOSED): each,
        ("half a login", CLOSED): each,
        ("silence", CLOSED): each,
        ("half a frame", CLOSED): each,
        ("half a TLS handshake", CLOSED): 2 * each,
        ("renegotiation", REFUSED): RENEGOTIATING,
    }
    assert good.problems == []
    assert len(good.waits) > 10
    assert max(good.waits) < WAIT_SECONDS_MAX
