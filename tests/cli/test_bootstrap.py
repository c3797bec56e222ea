"""Finding the broker, and saying why it was not found."""

import socket

import pytest

from millstream.cli.bootstrap import check_reachable, parse_address
from millstream.cli.failure import CommandFailed, ExitCode


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("broker", ("broker", 9092)),
        ("[::1]:19092", ("::1", 19092)),
        ("[::1]", ("::1", 9092)),
    ],
)
def test_addresses_have_a_host_and_perhaps_a_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", ":9092", "host:", "host:port", "host:0", "host:65536"])
def test_what_is_no_address_is_wrong_usage(text: str) -> None:
    with pytest.raises(CommandFailed, match="is not HOST:PORT") as failed:
        parse_address(text)
    assert failed.value.exit_code == ExitCode.USAGE


def test_one_reachable_address_of_several_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        found = check_reachable(f"127.0.0.1:{_closed_port()},127.0.0.1:{port}")
    assert found == ("127.0.0.1", port)


def test_a_refused_connection_is_named_with_the_next_step() -> None:
    port = _closed_port()
    with pytest.raises(
        CommandFailed, match=rf"127\.0\.0\.1:{port} refused.*millstream broker"
    ) as f:
        check_reachable(f"127.0.0.1:{port}")
    assert f.value.exit_code == ExitCode.UNREACHABLE


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
