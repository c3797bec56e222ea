"""Hosts and ports."""

import pytest

from millstream.cli.address import parse_address
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
