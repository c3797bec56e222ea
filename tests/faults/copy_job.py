"""A copy in transactions, with kill -9 of the node and of the copier all along.

Afterwards a reader of committed records must find the input: all of it, in order, once. A
reader of everything also finds what was aborted, and nothing that was never input.
"""

import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.copier import SOURCE, TARGET
from tests.faults.disk import CuttableDisk
from tests.faults.kills import Round
from tests.support.node import MillstreamNode

RECORDS = 100_000
_PASS_SECONDS_MAX = 300
_START_SECONDS_MAX = 5.0


class Copier:
    """`with Copier(...) as copier:` the program `copier`, which is killed and started again."""

    def __init__(self, bootstrap: str, records: int) -> None:
        self._command = [sys.executable, "-m", "tests.faults.copier", bootstrap, str(records)]
        self._process: subprocess.Popen[bytes] | None = None
        # A byte for each commit.
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # closed at the end of the block
        self._commits_before = 0

    def __enter__(self) -> "Copier":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self._output.close()

    def start(self) -> None:
        self._commits_before = self._commits()
        self._process = subprocess.Popen(
            self._command, stdout=self._output, stderr=subprocess.DEVNULL
        )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait_a_while(self, chance: random.Random) -> int | None:
        """Some time between two faults; the exit code if the copier ended by itself."""
        assert self._process is not None
        begin = time.monotonic()
        seconds = 0.3 + chance.random() * 1.2
        while (code := self._process.poll()) is None:
            waited = time.monotonic() - begin
            # On a busy machine faults would come faster than copiers start, and the copy would
            # never end. But a node that was killed meanwhile may keep one from committing.
            if waited > _START_SECONDS_MAX or (waited > seconds and self._has_committed()):
                return None
            time.sleep(0.01)
        return code

    def _commits(self) -> int:
        return os.fstat(self._output.fileno()).st_size

    def _has_committed(self) -> bool:
        return self._commits() > self._commits_before


def copy_passes(folder: Path, seeds: list[int], records: int = RECORDS) -> Iterator[Round]:
    for seed in seeds:
        yield copy_pass(folder / f"copy-{seed}", seed, records)


def copy_passes_with_power_cuts(
    folder: Path, seeds: list[int], records: int = RECORDS
) -> Iterator[Round]:
    """As above, but what kills the node also takes everything that was not synced."""
    for seed in seeds:
        place = folder / f"cut-{seed}"
        place.mkdir()
        with CuttableDisk(place) as disk:
            yield copy_pass(disk.mount_point / "data", seed, records, disk)


def copy_pass(data_dir: Path, seed: int, records: int, disk: CuttableDisk | None = None) -> Round:
    """With a disk, its power is cut whenever the node is killed."""
    chance = random.Random(seed)
    node = MillstreamNode(data_dir, "--set", "log.segment.bytes=1048576")
    if disk is not None:
        node.keep_log_in(disk.mount_point.parent)
    node.start()
    kills = {"node": 0, "copier": 0}
    with contextlib.ExitStack() as running:
        running.callback(node.kill)
        write_input(node.bootstrap, records)
        copier = running.enter_context(Copier(node.bootstrap, records))
        copier.start()
        deadline = time.monotonic() + _PASS_SECONDS_MAX
        while (code := copier.wait_a_while(chance)) != 0:
            if time.monotonic() > deadline:
                return Round(seed, 0, _told(kills), ["the copy does not get on"])
            if code is None and chance.random() < 0.5:
                kill_node(node, disk)
                kills["node"] += 1
                continue
            if code is None:
                copier.kill()
                kills["copier"] += 1
            copier.start()
        # What the last kill left of an open transaction is ended by the copier that came after.
        committed = read(node.bootstrap, "read_committed")
        everything = read(node.bootstrap, "read_uncommitted")
    return Round(seed, len(committed), _told(kills), problems(committed, everything, records))


def kill_node(node: MillstreamNode, disk: CuttableDisk | None) -> None:
    """Kill it, and start it again on what is left."""
    if disk is not None:
        node.freeze()
        disk.cut_power()
    node.kill()
    if disk is not None:
        disk.unmount()
        disk.mount()
    node.start()


def _told(kills: dict[str, int]) -> str:
    return f"SIGKILL of the node {kills['node']} times, of the copier {kills['copier']} times"


def value_of(number: int) -> bytes:
    return b"%d" % number


def write_input(bootstrap: str, records: int, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = [NewTopic(SOURCE, 1, replicas), NewTopic(TARGET, 1, replicas)]
    for future in admin.create_topics(wanted).values():
        future.result(20)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
    )
    for number in range(records):
        while True:
            try:
                producer.produce(SOURCE, value_of(number), partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def read(bootstrap: str, isolation: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checker",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TARGET, 0, 0)])
    numbers: list[int] = []
    while True:
        for message in consumer.consume(1000, timeout=0.5):
            if message.error() is not None:
                consumer.close()
                return numbers
            numbers.append(int(message.value()))


def problems(committed: list[int], everything: list[int], records: int) -> list[str]:
    found = []
    if committed != list(range(records)):
        duplicates = len(committed) - len(set(committed))
        missing = records - len(set(committed) & set(range(records)))
        is_sorted = committed == sorted(committed)
        found.append(
            f"committed: {len(committed)} records, {duplicates} twice, {missing} missing,"
            f" {'in order' if is_sorted else 'out of order'}"
        )
    if not set(committed) <= set(everything) or len(everything) < len(committed):
        found.append(f"uncommitted: only {len(everything)} records")
    if not set(everything) <= set(range(records)):
        found.append("uncommitted: records that were never written")
    return found
