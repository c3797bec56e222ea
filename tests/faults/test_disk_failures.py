"""A disk that is full, and a disk that fails: what clients are told, and what comes after."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from tests.faults import load
from tests.faults.disk import CuttableDisk
from tests.support.node import MillstreamNode
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.timeout(120),
]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount_point = tmp_path / "small"
    mount_point.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(mount_point)]
    subprocess.run(command, check=True)
    yield mount_point
    # Lazily: a descriptor may close a moment after its process is gone.
    subprocess.run(["umount", "--lazy", str(mount_point)], check=True)


def send(bootstrap: str, count: int, size: int, **options: object) -> list[KafkaError | int]:
    """Each record's offset, or its error; nothing is retried."""
    outcomes: list[KafkaError | int] = []

    def report(error: KafkaError | None, message: Message) -> None:
        outcomes.append(message.offset() if error is None else error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "message.send.max.retries": 0,
            "linger.ms": 0,
            **load.QUIET,
            **options,
        }
    )
    for _ in range(count):
        producer.produce(load.TOPIC, b"x" * size, partition=0, on_delivery=report)
        producer.flush(20)
    return outcomes


def test_a_full_disk_refuses_for_now_and_goes_on_when_there_is_room(
    small_disk: Path, tmp_path: Path
) -> None:
    node = MillstreamNode(small_disk / "data")
    node.keep_log_in(tmp_path)
    with node:
        load.create_topic(node.bootstrap)
        assert send(node.bootstrap, 2, 100_000) == [0, 1]
        filler = small_disk / "filler"
        with open(filler, "wb", buffering=0) as file:
            block = b"\0" * 65536
            try:
                while True:
                    file.write(block)
            except OSError:
                pass
        refused = send(node.bootstrap, 3, 500_000)
        assert all(isinstance(outcome, KafkaError) for outcome in refused)
        assert all(o.retriable() or o.code() == 56 for o in refused if isinstance(o, KafkaError))
        # Reading goes on, and nothing partial is there.
        _, ends = load.read_all(node.bootstrap, {})
        assert ends[0] == 2
        filler.unlink()
        assert send(node.bootstrap, 2, 500_000) == [2, 3]
    with node:
        assert load.end_offsets(node.bootstrap)[0] == 4


def test_a_failed_sync_takes_the_directory_offline_and_acknowledges_nothing_more(
    tmp_path: Path,
) -> None:
    with CuttableDisk(tmp_path) as disk:
        node = MillstreamNode(disk.mount_point / "data")
        node.keep_log_in(tmp_path)
        node.start()
        try:
            load.create_topic(node.bootstrap)
            assert send(node.bootstrap, 2, 1000) == [0, 1]
            disk.cut_power()
            for acks in ("all", 1, "all"):
                outcomes = send(node.bootstrap, 1, 1000, acks=acks, **{"message.timeout.ms": 3000})
                assert all(isinstance(outcome, KafkaError) for outcome in outcomes), outcomes
            wait_until(lambda: "is offline" in node.log_text, "the node has noticed")
            # The node itself still answers.
            admin = AdminClient({"bootstrap.servers": node.bootstrap, **load.QUIET})
            assert load.TOPIC in admin.list_topics(timeout=10).topics
        finally:
            node.kill()
        disk.unmount()
        disk.mount()
        with node:
            _, ends = load.read_all(node.bootstrap, {})
            assert ends[0] >= 2
