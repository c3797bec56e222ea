"""Compacted files are Kafka's files: its dump tool reads them and finds nothing wrong."""

import re
from pathlib import Path

import pytest

from tests.interop.clients.base import CODECS, Message
from tests.interop.clients.confluent import ConfluentKafka
from tests.support.apache_kafka import dump_log_segments
from tests.support.command_line import run_millstream
from tests.support.node import MillstreamNode

pytestmark = pytest.mark.java

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "index.interval.bytes": "2048",
    "min.cleanable.dirty.ratio": "1.0",
}
KEYS = 400
ROUNDS = 3


def rows(number: int, codec: str) -> list[Message]:
    return [
        Message(
            value=None if (key + number) % 50 == 0 else f"{codec} {number} ".encode() * (key % 90),
            key=b"%d" % key,
            headers=(("round", b"%d" % number),) if key % 3 == 0 else (),
        )
        for key in range(KEYS)
    ]


@pytest.fixture(scope="module")
def partition_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("compacted") / "data"
    with MillstreamNode(data_dir) as node:
        client = ConfluentKafka(node.bootstrap, batch_bytes_max=20_000)
        client.create_topic("table", configs=COMPACTED)
        for number in range(ROUNDS):
            for codec in CODECS:
                client.produce("table", rows(number, codec), codec=codec)
            ran = run_millstream("storage", "compact", "table", "-b", node.bootstrap)
            assert ran.exit_code == 0, ran.errors
        # Half of the keys once more, so that batches of every kind are in the log.
        client.produce("table", rows(ROUNDS, "none")[::2])
        assert run_millstream("storage", "compact", "table", "-b", node.bootstrap).exit_code == 0
        received = client.consume("table", count=KEYS)
        assert len({message.key for message in received}) == KEYS
    return data_dir / "table-0"


def test_kafkas_tool_reads_every_record(partition_dir: Path) -> None:
    output = dump_log_segments(sorted(partition_dir.glob("*.log")))
    assert "isvalid: false" not in output
    offsets = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)]
    assert len(offsets) == KEYS
    assert offsets == sorted(offsets)
    # Tombstones wait for their time to go.
    assert re.search(r"deleteHorizonMs: OptionalLong\[\d+\]", output)


def test_kafkas_tool_finds_the_indexes_sound(partition_dir: Path) -> None:
    found = sorted([*partition_dir.glob("*.index"), *partition_dir.glob("*.timeindex")])
    # Those of the active segment are empty, and the tool says nothing of such.
    files = [file for file in found if file.stat().st_size]
    assert len(files) > 1
    output = dump_log_segments(files, index_sanity=True)
    for file in files:
        assert f"{file} passed sanity check" in output
    complaints = re.findall(
        r"(?i)^.*(?:mismatch|non-consecutive|out of order|not found|error).*$",
        dump_log_segments(files),
        re.MULTILINE,
    )
    assert complaints == []


def test_our_own_check_finds_nothing_wrong(partition_dir: Path) -> None:
    ran = run_millstream("storage", "verify", str(partition_dir.parent))
    assert (ran.exit_code, ran.output) == (0, "")
