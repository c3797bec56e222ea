"""Exactly once under fire: kill -9 of the driver, of a worker and of the node.

One round: a Spark job copies a topic of at least 2,000 records to another in small batches;
at a random moment something is killed, or a commit says it failed after it took effect. The
job is started again from its checkpoint until it is done. Then every record must be in the
other topic once.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.kills import Round
from tests.spark.conftest import consume
from tests.support.node import MillstreamNode
from tests.support.spark_processes import descendants, kill_a_worker

RECORDS = 3000
MORE_RECORDS = 500
PARTITIONS = 2
STARTS_MAX = 8
SECONDS_MAX = 240
# With these a task has more rows than ride to the driver, and writes in its own transaction.
LARGE_VALUE_BYTES = 20_000
FAULTS = ("driver", "worker", "node", "commit")


def spark_kill_rounds(folder: Path, seeds: list[int]) -> Iterator[Round]:
    with MillstreamNode(folder / "data") as node:
        for seed in seeds:
            yield _round(node, folder / f"round-{seed}", seed)


def _round(node: MillstreamNode, folder: Path, seed: int) -> Round:
    folder.mkdir()
    chance = random.Random(seed)
    fault = FAULTS[seed % len(FAULTS)]
    source, sink = f"source-{seed}", f"sink-{seed}"
    _create_topics(node.bootstrap, source, sink)
    value_bytes = LARGE_VALUE_BYTES if chance.random() < 0.4 else 50
    sent = _produce(node.bootstrap, source, range(RECORDS), value_bytes)
    if fault == "commit":
        (folder / "fail-after-commit").touch()
    told = _run(node, folder, source, sink, fault, chance)
    if chance.random() < 0.5:
        sent += _produce(node.bootstrap, source, range(RECORDS, RECORDS + MORE_RECORDS), 50)
    problems = _finish(node, folder, source, sink)
    found = _numbers(
        consume(node.bootstrap, sink, partitions=PARTITIONS, isolation="read_committed")
    )
    problems += _differences(sent, found)
    return Round(seed=seed, acknowledged=len(sent), fault=told, problems=problems)


def spark_zombie_rounds(folder: Path, seeds: list[int]) -> Iterator[Round]:
    """Two drivers of one query: the first is frozen in the middle of a batch, the second does
    the whole job, then the first wakes up and must not get a record through."""
    with MillstreamNode(folder / "data") as node:
        for seed in seeds:
            yield _zombie_round(node, folder / f"round-{seed}", seed)


def _zombie_round(node: MillstreamNode, folder: Path, seed: int) -> Round:
    folder.mkdir()
    chance = random.Random(seed)
    source, sink = f"source-{seed}", f"sink-{seed}"
    _create_topics(node.bootstrap, source, sink)
    value_bytes = LARGE_VALUE_BYTES if seed % 2 else 50
    sent = _produce(node.bootstrap, source, range(RECORDS), value_bytes)
    zombie = _start(node, folder, source, sink)
    try:
        batch = chance.randrange(1, 4)
        _wait_for_batches(zombie, folder, batch)
        time.sleep(chance.random() * 0.5)
        frozen = [zombie.pid, *descendants(zombie.pid)]
        _signal_all(frozen, signal.SIGSTOP)
        problems = _finish(node, folder, source, sink)
        _signal_all(frozen, signal.SIGCONT)
        zombie.wait(SECONDS_MAX)
    finally:
        _kill_all(zombie)
    if "started again elsewhere" not in (folder / "job.log").read_text(errors="replace"):
        # Spark itself may have noticed, by a file of the checkpoint that is there already.
        assert zombie.returncode != 0, "a driver that was replaced ended as if all was well"
    found = _numbers(
        consume(node.bootstrap, sink, partitions=PARTITIONS, isolation="read_committed")
    )
    problems += _differences(sent, found)
    told = f"driver frozen in batch {batch}, woken after the end, exit {zombie.returncode}"
    return Round(seed=seed, acknowledged=len(sent), fault=told, problems=problems)


def _signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _create_topics(bootstrap: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        done.result(20)


def _produce(bootstrap: str, topic: str, numbers: range, value_bytes: int) -> list[int]:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in numbers:
        producer.produce(topic, key=b"%d" % number, value=(b"%d " % number).ljust(value_bytes))
        producer.poll(0)
    assert producer.flush(60) == 0
    return list(numbers)


def _numbers(values: list[bytes]) -> list[int]:
    return [int(value.split()[0]) for value in values]


def _differences(sent: list[int], found: list[int]) -> list[str]:
    wanted, got = Counter(sent), Counter(found)
    lost, extra = wanted - got, got - wanted
    return [
        f"{len(numbers)} records {what}, for example {sorted(numbers)[:5]}"
        for what, numbers in (("lost", lost), ("twice or foreign", extra))
        if numbers
    ]


def _start(node: MillstreamNode, folder: Path, source: str, sink: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.spark.copy_job", node.bootstrap, source, sink]
    with open(folder / "job.log", "ab") as log:
        return subprocess.Popen(
            [*command, str(folder)], stdout=log, stderr=log, start_new_session=True
        )


def _run(
    node: MillstreamNode,
    folder: Path,
    source: str,
    sink: str,
    fault: str,
    chance: random.Random,
) -> str:
    """One start of the job, and the fault; what was hit, for the record."""
    job = _start(node, folder, source, sink)
    try:
        batches = chance.randrange(5)
        _wait_for_batches(job, folder, batches)
        time.sleep(chance.random() * 1.5)
        if fault == "driver":
            _kill_all(job)
        elif fault == "worker":
            killed = kill_a_worker(job.pid, chance)
            return f"SIGKILL of worker {killed} after batch {batches}"
        elif fault == "node":
            node.kill()
            time.sleep(chance.random())
            node.start()
        job.wait(SECONDS_MAX)
    finally:
        if job.poll() is None and fault != "worker":
            _kill_all(job)
        elif fault == "worker":
            _wait_or_kill(job)
    return f"{fault} after batch {batches}, exit {job.returncode}"


def _wait_or_kill(job: subprocess.Popen[bytes]) -> None:
    try:
        job.wait(SECONDS_MAX)
    except subprocess.TimeoutExpired:
        _kill_all(job)


def _wait_for_batches(job: subprocess.Popen[bytes], folder: Path, count: int) -> None:
    """Until Spark has planned a batch with this number, or has ended."""
    deadline = time.monotonic() + SECONDS_MAX
    wanted = folder / "checkpoint" / "offsets" / str(count)
    while not wanted.exists() and job.poll() is None:
        assert time.monotonic() < deadline, f"no batch {count} in {SECONDS_MAX} s"
        time.sleep(0.02)


def _kill_all(job: subprocess.Popen[bytes]) -> None:
    """Driver and JVM, with all that they started."""
    _signal_all([job.pid, *descendants(job.pid)], signal.SIGKILL)
    job.wait()


def _finish(node: MillstreamNode, folder: Path, source: str, sink: str) -> list[str]:
    """Start the job again until it ends well."""
    for _ in range(STARTS_MAX):
        job = _start(node, folder, source, sink)
        _wait_or_kill(job)
        if job.returncode == 0:
            return []
    tail = (folder / "job.log").read_text(errors="replace")[-2000:]
    return [f"the job did not end well in {STARTS_MAX} starts: {tail}"]
