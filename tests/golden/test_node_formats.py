"""What nodes write for each other, held against what earlier versions wrote, byte for byte.

`levels/N.json` is what the last version of level N wrote. A change of these bytes that older nodes
would not understand needs a new level (`cluster/level.py`), and code that still writes the old one.

Covers cluster/znodes.py, cluster/level.py.
"""

import json
from pathlib import Path

import pytest

from millstream.cluster import level, znodes
from millstream.cluster.stores.store import Node
from millstream.model import TopicPartition
from millstream.wire.codec import request_reader
from millstream.wire.cursor import Cursor
from tests.golden.node_formats import BROKER, REQUESTS, STATE, TOPIC_ID, written

LEVELS = Path(__file__).parent / "levels"


def golden(number: int) -> dict[str, str]:
    found: dict[str, str] = json.loads((LEVELS / f"{number}.json").read_text())
    return found


def test_every_level_has_its_file() -> None:
    names = {path.stem for path in LEVELS.iterdir()}
    assert names == {str(number) for number in range(level.LOWEST, level.HIGHEST + 1)}


def test_this_version_writes_what_the_file_of_its_level_has() -> None:
    assert written() == golden(level.HIGHEST)


def test_level_1_changed_nothing_but_what_nodes_announce() -> None:
    older, newer = golden(0), golden(1)
    changed = {what for what in newer if older.get(what) != newer[what]}
    assert changed == {"/brokers/ids/3"}
    announced = [json.loads(each["/brokers/ids/3"]) for each in (older, newer)]
    assert [each.pop("features") for each in announced] == [
        {},
        {level.FEATURE: {"min_version": 0, "max_version": 1}},
    ]
    assert announced[0] == announced[1]


@pytest.mark.parametrize("number", range(level.LOWEST, level.HIGHEST + 1))
def test_this_version_reads_every_level(number: int) -> None:
    texts = golden(number)

    def node(path: str) -> Node:
        return Node(texts[path].encode(), STATE.version)

    broker = znodes.decode_broker(3, node("/brokers/ids/3"))
    assert broker.level == number
    assert (broker.endpoints, broker.log_ends) == (BROKER.endpoints, BROKER.log_ends)
    assert (broker.rack, broker.epoch, broker.is_stopping) == ("r1", 4, True)
    entry = znodes.decode_topic(node("/brokers/topics/orders"))
    assert entry is not None
    assert entry.topic_id == TOPIC_ID
    where = TopicPartition("orders", 0)
    path = znodes.partition_state_path(where.topic, where.partition)
    assert znodes.decode_partition(node(path), entry, where.partition) == STATE
    assert znodes.decode_incarnation(node("/brokers/epochs/3")).is_suspect
    assert znodes.decode_controller(node("/controller")) == 3
    assert znodes.decode_cluster_id(node("/cluster/id")) == "abc"
    assert znodes.decode_producer_block(node("/latest_producer_id_block")) == range(1000, 2000)
    assert znodes.decode_config(node("/config/topics/orders")) == {"retention.ms": "1000"}
    for name, (request, version) in REQUESTS.items():
        frame = bytes.fromhex(texts[f"{name} {version}"])
        assert request_reader(type(request), version)(Cursor(memoryview(frame))) == request
