"""Several listeners: each client is told the address of the one it asked.

Covers broker/node, broker/network/server.py, cli/broker.py.
"""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.wire.apis.describe_cluster import DescribeClusterRequest
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.metadata import MetadataRequest
from tests.support.node import MillstreamNode
from tests.support.raw_client import RawClient

LISTENERS = (
    "--set",
    "listeners=INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "--set",
    "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    "--set",
    "advertised.listeners=INSIDE://inside.example:1111,OUTSIDE://outside.example:2222",
    "--set",
    "inter.broker.listener.name=INSIDE",
)


def start(data_dir: Path, *options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "millstream", "broker", "--data-dir", str(data_dir), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_each_listener_answers_with_its_own_address(tmp_path: Path) -> None:
    process = start(tmp_path / "data", *LISTENERS)
    assert process.stdout is not None
    try:
        addresses = [process.stdout.readline().split()[-1] for _ in range(2)]
        for address, told in zip(
            addresses, (("inside.example", 1111), ("outside.example", 2222)), strict=True
        ):
            with RawClient(address) as client:
                [broker] = client.ask(MetadataRequest(topics=[]), 1).brokers
                assert (broker.host, broker.port) == told
                [broker] = client.ask(
                    DescribeClusterRequest(
                        include_cluster_authorized_operations=False, endpoint_type=1
                    ),
                    1,
                ).brokers
                assert (broker.host, broker.port) == told
                found = client.ask(
                    FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4
                ).coordinators[0]
                assert (found.host, found.port) == told
    finally:
        process.terminate()
        process.communicate(timeout=20)


def files_below(directory: Path) -> dict[str, int]:
    return {str(p.relative_to(directory)): p.stat().st_mtime_ns for p in directory.rglob("*")}


def refused(data_dir: Path, *options: str) -> str:
    """The one line a node says when it cannot start."""
    process = start(data_dir, *options)
    output, errors = process.communicate(timeout=20)
    assert process.returncode not in (0, None)
    assert output == ""
    lines = [line for line in errors.splitlines() if line]
    assert len(lines) == 1, errors
    assert "Traceback" not in errors
    return lines[0]


def test_a_port_in_use_is_one_line_and_touches_no_disk(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused(tmp_path / "data", "--listen", f"127.0.0.1:{port}")
    assert f"127.0.0.1:{port}" in line
    assert "in use" in line
    assert not (tmp_path / "data").exists()


def test_a_directory_in_use_is_one_line_and_unchanged(tmp_path: Path) -> None:
    with MillstreamNode(tmp_path / "data") as node:
        before = files_below(node.data_dir)
        line = refused(tmp_path / "data", "--listen", "127.0.0.1:0")
        assert "in use" in line
        assert files_below(node.data_dir) == before


def test_a_data_directory_that_is_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("I am a file")
    assert str(tmp_path / "data") in refused(tmp_path / "data", "--listen", "127.0.0.1:0")
    assert (tmp_path / "data").read_text() == "I am a file"


def test_a_directory_of_another_node_is_refused_unchanged(tmp_path: Path) -> None:
    with MillstreamNode(tmp_path / "data"):
        pass
    before = files_below(tmp_path / "data")
    line = refused(tmp_path / "data", "--listen", "127.0.0.1:0", "--set", "node.id=77")
    assert "belongs to node 1" in line
    assert files_below(tmp_path / "data") == before


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("log.retention.hour=5", ["log.retention.hour", "log.retention.hours"]),
        ("num.partitions=many", ["num.partitions", "many"]),
        ("zookeeper.connect=localhost:x", ["zookeeper.connect"]),
    ],
)
def test_a_wrong_option_is_one_line(tmp_path: Path, option: str, words: list[str]) -> None:
    line = refused(tmp_path / "data", "--listen", "127.0.0.1:0", "--set", option)
    assert all(word in line for word in words), line
    assert not (tmp_path / "data").exists()


def test_an_address_open_to_the_network_needs_tls(tmp_path: Path) -> None:
    line = refused(tmp_path / "data", "--listen", "0.0.0.0:0")
    assert all(word in line for word in ("not encrypted", "millstream secure", "allow.insecure"))
    assert not (tmp_path / "data").exists()


def test_an_address_open_to_the_network_without_tls_is_warned_of(tmp_path: Path) -> None:
    insecure = ("--set", "allow.insecure.listeners=true")
    process = start(tmp_path / "data", "--listen", "0.0.0.0:0", *insecure)
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    _, errors = process.communicate(timeout=20)
    assert "open to the network" in errors


def test_many_partitions_fit_into_few_descriptors(tmp_path: Path) -> None:
    """More partitions than descriptors: written, read, stopped, started again."""
    import resource

    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "millstream", "broker", "--listen", "127.0.0.1:0"),
            *("--data-dir", str(tmp_path / "data")),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)),
    )
    assert process.stdout is not None
    try:
        bootstrap = process.stdout.readline().split()[-1]
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        [created] = admin.create_topics([NewTopic("many", 400, 1)]).values()
        created.result(30)
        delivered: list[int] = []
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "log_level": 0})
        for partition in range(400):
            producer.produce(
                "many",
                json.dumps(partition).encode(),
                partition=partition,
                on_delivery=lambda error, message: delivered.append(
                    -1 if error is not None else message.partition()
                ),
            )
        assert producer.flush(60) == 0
        assert sorted(delivered) == list(range(400))
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0
