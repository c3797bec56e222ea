"""Finding the broker, and saying within seconds why it was not found."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from millstream.cli import first_contact
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.first_contact import BrokerWatch, connect_first, open_first
from tests.support.broker import Broker
from tests.support.ports import reserve_port


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@contextmanager
def listener(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A port that accepts connections and does this with each."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def speak_http(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    connection.close()


def hang_up(connection: socket.socket) -> None:
    connection.close()


def test_one_address_of_several_is_enough(broker: Broker) -> None:
    with connect_first(f"127.0.0.1:{reserve_port()},{broker.bootstrap}") as connection:
        assert str(connection.address) == broker.bootstrap


def test_a_refused_connection_is_named_with_the_next_step() -> None:
    address = f"127.0.0.1:{reserve_port()}"
    with pytest.raises(CommandFailed, match=rf"{address} refused.*millstream dev") as failed:
        open_first(address)
    assert failed.value.exit_code == ExitCode.UNREACHABLE


@pytest.mark.parametrize(
    ("answer", "text"),
    [(speak_http, "not in Kafka's protocol"), (hang_up, "closes connections without an answer")],
)
def test_a_port_that_is_not_kafka_is_named(
    answer: Callable[[socket.socket], None], text: str
) -> None:
    with listener(answer) as address, pytest.raises(CommandFailed, match=text) as failed:
        open_first(address)
    assert failed.value.exit_code == ExitCode.UNREACHABLE


def test_a_silent_port_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_contact, "_SECONDS_MAX", 0.2)
    monkeypatch.setattr(first_contact, "_SECONDS_MIN", 0.2)
    held: list[socket.socket] = []
    with listener(held.append) as address:
        with pytest.raises(CommandFailed, match="did not answer") as failed:
            open_first(address)
        for each in held:
            each.close()
    assert failed.value.exit_code == ExitCode.UNREACHABLE


def test_a_watch_believes_in_the_end_only_after_a_restart_would_be_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(first_contact, "_CHECK_EVERY_SECONDS", 0.0)
    with Broker() as broker:
        watch = BrokerWatch(broker.bootstrap)
        watch.suspect()
        watch.check()
    watch.suspect()
    began = time.monotonic()
    watch.check()
    monkeypatch.setattr(first_contact, "_GONE_SECONDS_MAX", 0.2)
    with pytest.raises(CommandFailed, match="refused"):
        while time.monotonic() - began < 30:
            watch.check()


def test_a_watch_does_nothing_without_a_suspicion() -> None:
    BrokerWatch(f"127.0.0.1:{reserve_port()}").check()
