"""Hostile clients against one node of 512 MiB, while a good client goes on with its work.

Each round measures the good client alone, and then under attack: requests that cost far more
than they weigh, at random sizes, one after the other, and all the time two hundred connections
that flood, stop in the middle of a frame, or do not read their answers.

In between, the same attackers attack another node on the same machine. What the good client then
waits longer than alone is the price of processes that compete for the same cores and disk, and
what it waits longer still when its own node is attacked is the node's.
"""

import contextlib
import itertools
import multiprocessing
import os
import random
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from millstream.model import NO_TOPIC_ID
from millstream.wire.apis.delete_topics import DeletableTopic, DeleteTopicsRequest
from millstream.wire.apis.metadata import MetadataRequest
from tests.faults import load
from tests.faults.gaps import percentile
from tests.faults.kills import Round
from tests.faults.ledger import Ledger, problems, value_of
from tests.support.attacks import ATTACKS, Aim, fetch_of, frame
from tests.support.memory_limit import limited_memory, memory_mb
from tests.support.node import MillstreamNode
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until

MEMORY_BYTES = 512 << 20
CONNECTIONS = 200
ATTACKED_SECONDS = 50.0
QUIET_SECONDS = 5.0
ELSEWHERE_SECONDS = 8.0
# Until what the good client has sent is answered, and its commits.
_STOP_SECONDS_MAX = 60
# One record every so often: a client that waits, not one that fills the node.
_EVERY_SECONDS = 0.005
# Records that are sent and consumed before anything is measured.
_CAUGHT_UP: Final = 200
# How much longer a good client may wait when its own node is attacked, and not another one.
SLOWER_MAX: Final = 2.0
# A good client and its attackers do not share an address.
_HOSTILE_ADDRESS = "127.0.0.66"
_GROUP = "good"


@dataclass(frozen=True)
class HostileRound(Round):
    quiet_p99_ms: float
    # While another node was attacked.
    elsewhere_p99_ms: float
    attacked_p99_ms: float
    # Of the node: so far, and after the round.
    peak_mb: float
    resident_mb: float
    # Of the machine, whose other work is part of every wait.
    load_average: float


class GoodClient:
    """Produces with acks=all, consumes in a group and commits, and notes how long each took."""

    def __init__(self, bootstrap: str, ledger: Ledger, seed: int) -> None:
        self._ledger = ledger
        self._number = seed * load.NUMBERS_PER_ROUND
        # Until an acknowledgement, until a record is consumed, and until a commit is answered.
        self.waits_ms: list[float] = []
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                **load.QUIET,
            }
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": _GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                **load.QUIET,
            }
        )
        self._consumer.subscribe([load.TOPIC])
        self.consumed = 0
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (("the producer", self._produce), ("the consumer", self._consume))
        ]
        for thread in self._threads:
            thread.start()

    def wait_until_consuming(self) -> None:
        """Until it has caught up: what it read late, as it joined late, says nothing of a node."""
        wait_until(lambda: self.consumed >= _CAUGHT_UP, "the good client consumes")

    def measure(self, seconds: float) -> list[float]:
        """The waits that ended in this time, in order of size."""
        self.waits_ms.clear()
        time.sleep(seconds)
        return sorted(self.waits_ms)

    def _produce(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            value = value_of("all", self._number)
            self._number += 1
            sent_at = time.monotonic()
            self._producer.produce(
                load.TOPIC,
                f"{value}|{sent_at}".encode(),
                partition=self._number % load.PARTITIONS,
                on_delivery=self._delivered(value, sent_at),
            )
            due = max(due + _EVERY_SECONDS, time.monotonic() - 1)
            while (left := due - time.monotonic()) > 0:
                self._producer.poll(left)
        if self._producer.flush(_STOP_SECONDS_MAX):
            self.failures.append("records were never answered")

    def _delivered(
        self, value: str, sent_at: float
    ) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(f"{value} was not acknowledged: {error}")
                self._ledger.unknown.add(value)
                return
            self._ledger.acknowledge(value, message.partition(), message.offset())
            self.waits_ms.append(1000 * (time.monotonic() - sent_at))

        return report

    def _consume(self) -> None:
        commit_at = 0.0
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error():
                continue
            self.consumed += 1
            value = message.value()
            assert value is not None
            began = time.monotonic()
            self.waits_ms.append(1000 * (began - float(value.rpartition(b"|")[2])))
            if began >= commit_at:
                commit_at = began + 0.1
                self._commit(message, began)
        self._consumer.close()

    def _commit(self, message: Message, began: float) -> None:
        try:
            self._consumer.commit(message, asynchronous=False)
        except KafkaException as error:
            self.failures.append(f"commit failed: {error}")
        self.waits_ms.append(1000 * (time.monotonic() - began))

    def stop(self) -> None:
        self._stop.set()
        end = time.monotonic() + _STOP_SECONDS_MAX
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))
            if thread.is_alive():
                self.failures.append(f"{thread.name} did not stop in {_STOP_SECONDS_MAX} s")


# -- the attackers, in a process of their own ----------------------------------------------


def attack_all(port: int, seed: int, count: Any, is_over: Any) -> None:
    """Attack until it is over; counts the attacks that were made."""
    # Attackers have machines of their own: here they get what the node and the good client leave.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    chance = random.Random(seed)
    crowd = Crowd(port, chance)
    threading.Thread(target=crowd.bother, args=(is_over,), daemon=True).start()
    for number in itertools.count():
        attack = chance.choice(ATTACKS)
        aim = Aim(f"hostile-{seed}-{number}", f"hostile-{seed}-{number}", chance.uniform(0.05, 1))
        with contextlib.suppress(OSError), _client(port) as client:
            frames = list(attack.frames(client, aim))
            for each in frames:
                if is_over.value:
                    return
                client.sock.sendall(each)
                if attack.reads_answers:
                    client.receive_frame()
        with contextlib.suppress(OSError), _client(port) as client:
            topic = DeletableTopic(name=aim.topic, topic_id=NO_TOPIC_ID)
            client.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=5000), 6)
        count.value += 1
        if is_over.value:
            return


def _end_with_parent() -> None:
    """A run that was killed leaves no attackers behind."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _client(port: int) -> RawClient:
    return RawClient(f"127.0.0.1:{port}", timeout_seconds=20, source_address=(_HOSTILE_ADDRESS, 0))


class Crowd:
    """Many connections, each with a bad habit."""

    def __init__(self, port: int, chance: random.Random) -> None:
        self._port = port
        self._chance = chance
        self._habits = (self._flood, self._send_half, self._leave_answers, self._say_nonsense)

    def bother(self, is_over: Any) -> None:
        socks: list[socket.socket] = []
        while not is_over.value:
            if len(socks) < CONNECTIONS:
                with contextlib.suppress(OSError):
                    socks.append(
                        socket.create_connection(
                            ("127.0.0.1", self._port), 5, (_HOSTILE_ADDRESS, 0)
                        )
                    )
                    socks[-1].setblocking(False)
            if not socks:
                # The node takes its time to accept, or refuses: try again.
                time.sleep(0.05)
                continue
            sock = self._chance.choice(socks)
            try:
                self._chance.choice(self._habits)(sock)
            except BlockingIOError:
                # The node reads nothing from it: to try again at once would take the core, and
                # the other attacks of this process would wait.
                pass
            except OSError:
                sock.close()
                socks.remove(sock)
            time.sleep(0.005)

    def _flood(self, sock: socket.socket) -> None:
        """Requests without end, and nobody reads the answers."""
        sock.send(frame(MetadataRequest(topics=None), 9) * self._chance.randrange(200))

    def _send_half(self, sock: socket.socket) -> None:
        """A frame of up to 100 MB that comes slowly, or never."""
        sock.send(struct.pack(">i", self._chance.randrange(100_000_000)) + bytes(12_000))

    def _leave_answers(self, sock: socket.socket) -> None:
        """Fetch everything, and read a little of it."""
        sock.send(fetch_of(load.TOPIC, range(load.PARTITIONS)) * 5)
        sock.recv(100)

    def _say_nonsense(self, sock: socket.socket) -> None:
        sock.send(self._chance.randbytes(self._chance.randrange(1, 5000)))


@contextlib.contextmanager
def attackers(port: int, seed: int) -> Iterator[Any]:
    """While the block runs; yields the number of attacks so far."""
    spawn = multiprocessing.get_context("spawn")
    count, is_over = spawn.Value("i", 0), spawn.Value("b", 0)
    process = spawn.Process(target=attack_all, args=(port, seed, count, is_over), daemon=True)
    process.start()
    try:
        yield count
    finally:
        is_over.value = 1
        process.join(30)
        if process.is_alive():
            process.kill()
            process.join()


# -- what they have shown ------------------------------------------------------------------


def summary(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines for a person; none where no round has measured it."""
    found = _measured(rows)
    if not found:
        return []
    names = ("quiet_p99_ms", "elsewhere_p99_ms", "attacked_p99_ms")
    alone, elsewhere, attacked = (median(row[name] for row in found) for name in names)
    times = _times_slower(found)
    return [
        f"a good client's p99, median of {len(found)} rounds: alone {alone:.1f} ms, "
        f"another node attacked {elsewhere:.1f} ms, attacked {attacked:.1f} ms",
        f"attacked / another node attacked, by round: median {median(times):.1f}, "
        f"from {times[0]:.1f} to {times[-1]:.1f}",
        f"peak memory: {max(row['peak_mb'] for row in found):.0f} MB of {MEMORY_BYTES >> 20} MiB",
    ]


def is_too_slow(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Does a good client wait too long, in the median of the rounds?"""
    found = _measured(rows)
    return bool(found) and median(_times_slower(found)) > SLOWER_MAX


def _measured(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["counts"] and "elsewhere_p99_ms" in row]


def _times_slower(found: Sequence[Mapping[str, Any]]) -> list[float]:
    return sorted(row["attacked_p99_ms"] / row["elsewhere_p99_ms"] for row in found)


# -- the rounds --------------------------------------------------------------------------------


def hostile_rounds(
    folder: Path,
    seeds: list[int],
    *,
    quiet_seconds: float = QUIET_SECONDS,
    elsewhere_seconds: float = ELSEWHERE_SECONDS,
    attacked_seconds: float = ATTACKED_SECONDS,
) -> Iterator[HostileRound]:
    """All rounds are of one process; it is started once."""
    seconds = (quiet_seconds, elsewhere_seconds, attacked_seconds)
    with ExitStack() as stack:
        node, limit = _limited_node(stack, folder / "data")
        for seed in seeds:
            yield _round(node, limit, seed, seconds)


def _limited_node(stack: ExitStack, data_dir: Path) -> tuple[MillstreamNode, str]:
    """Running until the stack ends, and how it is limited."""
    limit = stack.enter_context(limited_memory(MEMORY_BYTES))
    node = MillstreamNode(data_dir, "--set", "log.retention.bytes=100000000")
    node.run_inside(limit.command, "127.0.0.1")
    node.start()
    stack.callback(node.kill)
    load.create_topic(node.bootstrap)
    return node, limit.description


def _attacked_elsewhere(good: GoodClient, folder: Path, seed: int, seconds: float) -> list[float]:
    """The good client's waits while the attackers attack another node."""
    with ExitStack() as stack:
        other, _ = _limited_node(stack, folder / f"other-{seed}")
        stack.enter_context(attackers(_port(other), seed))
        return good.measure(seconds)


def _port(node: MillstreamNode) -> int:
    return int(node.bootstrap.rpartition(":")[2])


def _round(
    node: MillstreamNode, limit: str, seed: int, seconds: tuple[float, float, float]
) -> HostileRound:
    quiet_seconds, elsewhere_seconds, attacked_seconds = seconds
    pid = node.pid
    start = load.end_offsets(node.bootstrap)
    ledger = Ledger()
    good = GoodClient(node.bootstrap, ledger, seed)
    load.wait_until_acknowledged(ledger, _CAUGHT_UP, of=("all",))
    good.wait_until_consuming()
    quiet = good.measure(quiet_seconds)
    elsewhere = _attacked_elsewhere(good, node.data_dir.parent, seed, elsewhere_seconds)
    with attackers(_port(node), seed) as count:
        attacked = good.measure(attacked_seconds)
        attacks = count.value
    good.stop()
    found, _ = load.read_all(node.bootstrap, start)
    bad = problems(ledger, found, writers={"all"}) + good.failures
    if not node.is_running:
        bad.append(f"the node died: {node.log_text[-2000:]}")
    if not attacks:
        bad.append("no attack was made")
    if not good.consumed:
        bad.append("the good client consumed nothing")
    if _committed(node.bootstrap) == 0:
        bad.append("the good client committed nothing")
    quiet_p99, elsewhere_p99, attacked_p99 = (
        round(percentile(waits, 99), 1) for waits in (quiet, elsewhere, attacked)
    )
    return HostileRound(
        seed=seed,
        acknowledged=len(ledger.acknowledged),
        fault=f"{attacks} attacks and {CONNECTIONS} connections on {pid}, {limit}",
        problems=bad,
        quiet_p99_ms=quiet_p99,
        elsewhere_p99_ms=elsewhere_p99,
        attacked_p99_ms=attacked_p99,
        peak_mb=round(memory_mb(pid, "VmHWM"), 1),
        resident_mb=round(memory_mb(pid, "VmRSS"), 1),
        load_average=round(os.getloadavg()[0], 1),
    )


def _committed(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": _GROUP, **load.QUIET})
    try:
        places = [TopicPartition(load.TOPIC, index) for index in range(load.PARTITIONS)]
        return sum(max(place.offset, 0) for place in consumer.committed(places, timeout=20))
    finally:
        consumer.close()
