import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.cli.cluster_start import node_address
from millstream.cli.failure import CommandFailed
from tests.support.permissions import open_to_others, open_umask
from tests.support.tools import require, skip_if_java_is_left_out


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


def test_what_a_cluster_stores_is_for_its_owner_only(tmp_path: Path) -> None:
    skip_if_java_is_left_out()
    require("java")
    folder = tmp_path / "cluster"
    command = ["cluster", "start", "--nodes", "1", "--data-dir", str(folder)]
    with (
        open_umask(),
        subprocess.Popen(
            [sys.executable, "-m", "millstream", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as started,
    ):
        try:
            assert started.stdout is not None
            assert started.stdout.readline().startswith("bootstrap ")
            found = {path.name for path in folder.rglob("*")}
            assert {"zoo.cfg", "zookeeper.output", "node-1.log", "meta.properties"} <= found
            assert open_to_others(folder) == []
        finally:
            started.send_signal(signal.SIGTERM)
            started.communicate(timeout=60)
    assert started.returncode == 0
