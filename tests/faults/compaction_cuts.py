"""Power cuts of the disk under a node that compacts all the time.

A producer with acks=all writes numbered values under few keys, and deletes keys now and
then; segments are small and the cleaner never rests. After each cut: of every key the
newest acknowledged record, or a later one, is there; every record stands at the offset that
it was acknowledged at; per key the numbers grow with the offsets. A kill would not do: only
a cut shows whether the new files were on the disk before the old ones went.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.disk import CuttableDisk
from tests.faults.kills import ACKNOWLEDGED_PER_ROUND_MIN, Round
from tests.faults.load import QUIET
from tests.support.node import MillstreamNode

TOPIC = "compacted"
PARTITIONS = 3
KEYS = 60
IN_FLIGHT_MAX = 500
CONFIGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "12000",
    "min.cleanable.dirty.ratio": "0.01",
    # Tombstones go within a round or two, so that their removal is under test.
    "delete.retention.ms": "200",
}
OPTIONS = ("--set", "log.cleaner.backoff.ms=1", "--set", "log.segment.delete.delay.ms=0")
Place = tuple[int, int]
# Key and number of a record.
Written = tuple[int, int]


@dataclass
class Ledger:
    # Every record that was acknowledged, and where.
    places: dict[Written, Place] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    tombstones: set[Written] = field(default_factory=set)
    acknowledged: int = 0


class KeyedWriter:
    """One producer in a thread; a key always goes to the same partition, in order."""

    def __init__(self, bootstrap: str, ledger: Ledger, seed: int, first_number: int) -> None:
        self.number = first_number
        self._ledger = ledger
        self._random = random.Random(seed)
        self._in_flight = 0
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.size": 6000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "message.timeout.ms": 120_000,
                "compression.type": self._random.choice(["none", "lz4", "zstd"]),
                **QUIET,
            }
        )
        self._thread = threading.Thread(target=self._run, name="keyed-writer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._in_flight >= IN_FLIGHT_MAX:
                self._producer.poll(0.01)
                continue
            for _ in range(self._random.randint(1, 40)):
                self._send()
            self._producer.poll(0)

    def _send(self) -> None:
        key, number = self._random.randrange(KEYS), self.number
        self.number += 1
        is_tombstone = self._random.random() < 0.05
        if is_tombstone:
            self._ledger.tombstones.add((key, number))
        self._in_flight += 1
        self._producer.produce(
            TOPIC,
            None if is_tombstone else b"%d|" % number + b"x" * self._random.randint(0, 200),
            key=b"%d" % key,
            headers={"number": b"%d" % number},
            partition=key % PARTITIONS,
            on_delivery=self._delivered(key, number),
        )

    def _delivered(self, key: int, number: int) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            self._in_flight -= 1
            assert error is None, error
            ledger = self._ledger
            offset = message.offset()
            # Of a repeated batch librdkafka knows that it is there, not where.
            if offset is not None:
                ledger.places[key, number] = (message.partition(), offset)
            ledger.newest[key] = max(number, ledger.newest.get(key, -1))
            ledger.acknowledged += 1

        return report

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(60)
        assert left == 0, f"{left} records were never answered"


def read_all(bootstrap: str) -> dict[Place, Written]:
    """Everything a fresh reader finds."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    found: dict[Place, Written] = {}
    ended: set[int] = set()
    give_up = time.monotonic() + 60
    try:
        while len(ended) < PARTITIONS:
            assert time.monotonic() < give_up, f"the reader stopped; at an end: {ended}"
            for message in consumer.consume(1000, timeout=0.2):
                error = message.error()
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    ended.add(message.partition())
                    continue
                place = (message.partition(), message.offset())
                assert place not in found, f"{place} delivered twice"
                number = int(dict(message.headers())["number"])
                found[place] = (int(message.key()), number)
        return found
    finally:
        consumer.close()


def problems(ledger: Ledger, found: dict[Place, Written]) -> list[str]:
    bad = []
    newest: dict[int, int] = {}
    for place, (key, number) in sorted(found.items()):
        expected = ledger.places.get((key, number))
        if expected is not None and expected != place:
            bad.append(f"moved: {key}/{number} was acknowledged at {expected}, is at {place}")
        if number <= newest.get(key, -1):
            bad.append(f"disorder: {key}/{number} at {place} follows {newest[key]}")
        newest[key] = number
    for key, number in ledger.newest.items():
        if newest.get(key, -1) >= number:
            continue
        # A tombstone may be gone, and with it everything before.
        if (key, number) in ledger.tombstones and key not in newest:
            continue
        bad.append(f"lost: {key}/{number} was acknowledged, the newest is {newest.get(key)}")
    return bad


def compaction_cut_rounds(folder: Path, seeds: list[int]) -> Iterator[Round]:
    with ExitStack() as stack:
        disk = stack.enter_context(CuttableDisk(folder))
        node = MillstreamNode(folder / "mnt" / "data", *OPTIONS)
        node.keep_log_in(folder)
        node.start()
        stack.callback(node.kill)
        admin = AdminClient({"bootstrap.servers": node.bootstrap, **QUIET})
        [answer] = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=CONFIGS)]).values()
        answer.result(20)
        # Numbers go on from round to round: what an older round left is older.
        ledger, first_number = Ledger(), 0
        for seed in seeds:
            writer = KeyedWriter(node.bootstrap, ledger, seed, first_number)
            yield _round(node, disk, seed, ledger, writer)
            first_number = writer.number


def _round(
    node: MillstreamNode, disk: CuttableDisk, seed: int, ledger: Ledger, writer: KeyedWriter
) -> Round:
    chance = random.Random(seed)
    before, log_before = ledger.acknowledged, len(node.log_text)
    _wait_until_acknowledged(ledger, before + ACKNOWLEDGED_PER_ROUND_MIN)
    time.sleep(chance.random() * 0.3)
    node.freeze()
    disk.cut_power()
    node.kill()
    rounds = node.log_text[log_before:].count("compacted compacted-")
    disk.unmount()
    disk.mount()
    left = [
        path.suffix
        for path in (node.data_dir).glob(f"{TOPIC}-*/*")
        if path.suffix in (".cleaned", ".swap")
    ]
    log_before = len(node.log_text)
    node.start()
    reached = ledger.acknowledged
    _wait_until_acknowledged(ledger, reached + 200)
    writer.stop()
    found = read_all(node.bootstrap)
    bad = problems(ledger, found)
    bad += [line for line in node.log_text[log_before:].splitlines() if " ERROR " in line]
    return Round(
        seed=seed,
        acknowledged=ledger.acknowledged - before,
        fault=f"power cut after {rounds} compactions, "
        f"{left.count('.cleaned')} cleaned and {left.count('.swap')} swap files left, "
        f"{len(found)} records after it",
        problems=bad,
    )


def _wait_until_acknowledged(ledger: Ledger, count: int, seconds_max: float = 60) -> None:
    end = time.monotonic() + seconds_max
    while ledger.acknowledged < count:
        assert time.monotonic() < end, f"only {ledger.acknowledged} of {count} acknowledged"
        time.sleep(0.005)
