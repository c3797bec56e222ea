"""Power cuts of the disk under the node, under load, with a consumer reading along.

Only acks=all is a promise here: what it acknowledged must be there. The consumer reads
ahead of the disk, so a cut takes back what it saw; afterwards it must have seen, at every
offset, the record that is there now: told of the truncation or reset, never skipping.
"""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.faults import load
from tests.faults.disk import CuttableDisk
from tests.faults.kills import ACKNOWLEDGED_PER_ROUND_MIN, Round
from tests.faults.ledger import Ledger, Place, problems
from tests.support.node import MillstreamNode


class Follower:
    """A consumer that lives through the cuts and remembers the last value per place."""

    def __init__(self, bootstrap: str, start: dict[int, int]) -> None:
        self.seen: dict[Place, str] = {}
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                **load.QUIET,
            }
        )
        self._consumer.assign(
            [TopicPartition(load.TOPIC, partition, at) for partition, at in start.items()]
        )
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, timeout=0.05):
                if message.error() is None:
                    place = (message.partition(), message.offset())
                    self.seen[place] = message.value().decode().partition("|")[0]

    def wait_until_seen(self, found: dict[Place, str], seconds_max: float = 60) -> list[str]:
        """What it still has not seen as it is now, after waiting."""
        end = time.monotonic() + seconds_max
        while True:
            skipped = [place for place, value in found.items() if self.seen.get(place) != value]
            if not skipped or time.monotonic() > end:
                return [
                    f"skipped: the consumer never saw {found[place]} at {place}, "
                    f"but {self.seen.get(place)}"
                    for place in skipped[:5]
                ]
            time.sleep(0.05)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


def power_cut_rounds(folder: Path, seeds: list[int]) -> Iterator[Round]:
    with ExitStack() as stack:
        disk = stack.enter_context(CuttableDisk(folder))
        node = MillstreamNode(folder / "mnt" / "data", "--set", "log.segment.bytes=1048576")
        node.keep_log_in(folder)
        node.start()
        stack.callback(node.kill)
        load.create_topic(node.bootstrap)
        for seed in seeds:
            yield _round(node, disk, seed)


def _round(node: MillstreamNode, disk: CuttableDisk, seed: int) -> Round:
    chance = random.Random(seed)
    start = load.end_offsets(node.bootstrap)
    ledger = Ledger()
    follower = Follower(node.bootstrap, start)
    writers = load.writers(node.bootstrap, ledger, seed)
    load.wait_until_acknowledged(ledger, ACKNOWLEDGED_PER_ROUND_MIN, of=("all",))
    time.sleep(chance.random() * 0.2)
    in_flight = sum(writer.in_flight for writer in writers)
    # The processor stops with the disk. A node that ran on for a moment could acknowledge
    # what a sync that was under way reports after the cut, which no real one lives to do.
    node.freeze()
    disk.cut_power()
    node.kill()
    disk.unmount()
    disk.mount()
    node.start()
    reached = ledger.counts.total()
    load.wait_until_acknowledged(ledger, reached + 200)
    for writer in writers:
        writer.stop()
    found, ends = load.read_all(node.bootstrap, ledger.first_offsets(start))
    bad = problems(ledger, found, writers={"all"})
    bad += follower.wait_until_seen(found)
    follower.stop()
    return Round(
        seed=seed,
        acknowledged=ledger.counts["all"],
        fault=f"power cut with {in_flight} in flight, {sum(ends.values())} records after it",
        problems=bad,
    )
