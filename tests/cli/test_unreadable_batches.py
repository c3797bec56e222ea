import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.cli.connection import Cluster
from millstream.cli.unreadable_batches import offset_behind
from millstream.model import TopicPartition
from tests.broker.handlers.exchanges import batch, produce
from tests.broker.handlers.test_poison import bomb, garbage, not_compressed
from tests.support.attacks import create_topic
from tests.support.node import MillstreamNode
from tests.support.raw_client import RawClient

TOPIC = "old"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[MillstreamNode]:
    """Its topic has what earlier versions accepted: offsets 0, and 2 to 4; 1 and 5 are good."""
    node = MillstreamNode(tmp_path / "data")
    node.start()
    with RawClient(node.bootstrap) as client:
        create_topic(client, TOPIC)
    node.stop()
    stored = [garbage(batch(b"?")), batch(b"first")]
    stored += [spoil(batch(b"?")) for spoil in (garbage, not_compressed, bomb)]
    stored.append(batch(b"behind"))
    with (tmp_path / "data" / f"{TOPIC}-0" / f"{0:020}.log").open("ab") as log:
        for offset, data in enumerate(stored):
            log.write(struct.pack(">q", offset) + bytes(data[8:]))
    node.start()
    yield node
    node.stop()


@pytest.mark.parametrize("arguments", [["-e"], ["-n", "3"]])
def test_consume_gets_past_them(node: MillstreamNode, arguments: list[str]) -> None:
    with RawClient(node.bootstrap) as client:
        assert produce(client, TOPIC, batch(b"new")).base_offset == 6
    command = [sys.executable, "-m", "millstream", "consume", TOPIC, *arguments]
    done = subprocess.run(
        [*command, "-b", node.bootstrap], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines() == ["first", "behind", "new"]
    assert f"{TOPIC}-0: skipped offsets 2 to 4: their records cannot be read" in done.stderr
    assert done.returncode == 0


def test_what_can_be_read_is_not_skipped(node: MillstreamNode) -> None:
    place = TopicPartition(TOPIC, 0)
    with Cluster(node.bootstrap) as cluster:
        behind = [offset_behind(cluster, place, offset) for offset in range(7)]
    assert behind == [1, 1, 5, 5, 5, 5, 6]
