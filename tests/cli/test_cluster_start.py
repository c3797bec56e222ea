import pytest

from millstream.cli.cluster_start import node_address
from millstream.cli.failure import CommandFailed


def test_nodes_take_free_ports_unless_told_where_the_first_one_listens() -> None:
    assert node_address(None, 3) == "127.0.0.1:0"
    assert [node_address("host1:9092", place) for place in range(3)] == [
        "host1:9092",
        "host1:9093",
        "host1:9094",
    ]
    assert node_address("[::1]:9092", 1) == "[::1]:9093"


def test_an_address_without_a_port_that_can_be_counted_is_refused() -> None:
    with pytest.raises(CommandFailed, match="HOST:PORT"):
        node_address("host1:http", 0)
