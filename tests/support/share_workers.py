"""Consumers of a share group in processes of their own, and a ledger of what they were confirmed.

    python -m tests.support.share_workers BOOTSTRAP GROUP TOPIC COUNT MODE RELEASED ACQUIRE

runs librdkafka's, one per thread; `ShareWorkers.java` runs Java's and `go/share_workers` those of
franz-go, with the same arguments. All print two lines for each record, when a consumer
acknowledges it and when the broker has confirmed that, and stop when stdin ends.
"""

import random
import subprocess
import sys
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.go_program import go_program, missing_go
from tests.support.java_program import java_command

_JAVA = Path(__file__).parent / "java" / "ShareWorkers.java"
_GO = Path(__file__).parent / "go" / "share_workers"
KINDS = ("java", "confluent", "franz-go")


def missing_franz_go() -> str | None:
    """Why franz-go's consumers cannot run here; None if they can."""
    return missing_go(_GO)


@dataclass(frozen=True)
class Confirmed:
    type: str
    partition: int
    offset: int
    count: int


@dataclass
class Ledger:
    """What was confirmed, in the order in which it was read, and all that was ever said."""

    lines: list[Confirmed] = field(default_factory=list)
    said: set[Confirmed] = field(default_factory=set)

    @property
    def accepted(self) -> set[tuple[int, int]]:
        return {(one.partition, one.offset) for one in self.lines if one.type == "ACCEPT"}

    @property
    def said_accepted(self) -> set[tuple[int, int]]:
        """Also those whose confirmation was lost with a node or a consumer."""
        return {(one.partition, one.offset) for one in self.said if one.type == "ACCEPT"}

    def problems(self) -> list[str]:
        """A record that was accepted is not delivered again, and no delivery is confirmed twice."""
        found = []
        by_record: dict[tuple[int, int], list[Confirmed]] = defaultdict(list)
        for one in self.lines:
            by_record[one.partition, one.offset].append(one)
        for where, lines in sorted(by_record.items()):
            counts = [one.count for one in lines]
            if len(set(counts)) != len(counts):
                found.append(f"{where}: a delivery was confirmed twice: {lines}")
            accepted = [one.count for one in lines if one.type == "ACCEPT"]
            if accepted and max(counts) > min(accepted):
                found.append(f"{where}: it was delivered after it was accepted: {lines}")
        return found


def _command(kind: str) -> list[str]:
    if kind == "java":
        return java_command(_JAVA, heap="384m")
    if kind == "franz-go":
        return [go_program(_GO)]
    return [sys.executable, "-m", "tests.support.share_workers"]


class Workers:
    """`with Workers("java", bootstrap, group, topic) as workers: ... workers.ledger`"""

    def __init__(
        self,
        kind: str,
        bootstrap: str,
        group: str,
        topic: str,
        *,
        count: int = 2,
        mode: str = "explicit",
        released_percent: int = 10,
        acquire_mode: str = "batch_optimized",
        ledger: Ledger | None = None,
    ) -> None:
        arguments = [bootstrap, group, topic, str(count), mode, str(released_percent)]
        self.ledger = ledger if ledger is not None else Ledger()
        self.process = subprocess.Popen(
            [*_command(kind), *arguments, acquire_mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            parts = line.split()
            # The last line of a process that was killed may be cut off.
            if len(parts) == 5 and line.endswith("\n"):
                one = Confirmed(parts[1], *map(int, parts[2:]))
                if parts[0] == "said":
                    self.ledger.said.add(one)
                else:
                    self.ledger.lines.append(one)

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *problem: Any) -> None:
        self.stop()

    def kill(self) -> None:
        self.process.kill()
        self._end()

    def stop(self) -> None:
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            # librdkafka 2.16 sometimes never returns from closing a share consumer, with Apache
            # Kafka, too.
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self._end()

    def _end(self) -> None:
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


# -- librdkafka's -------------------------------------------------------------------------


def main(arguments: list[str]) -> None:
    bootstrap, group, topic, count, mode, released, _ = arguments
    stopped = threading.Event()
    threads = [
        threading.Thread(
            target=_work, args=(bootstrap, group, topic, mode, int(released), number, stopped)
        )
        for number in range(int(count))
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    stopped.set()
    for thread in threads:
        thread.join()


def _work(
    bootstrap: str,
    group: str,
    topic: str,
    mode: str,
    released_percent: int,
    seed: int,
    stopped: threading.Event,
) -> None:
    from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

    chance = random.Random(seed)
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "max.poll.records": 20,
            "share.acknowledgement.mode": mode,
        }
    )
    consumer.subscribe([topic])
    while not stopped.is_set():
        said = []
        for message in consumer.poll(0.2):
            if message.error() is not None:
                continue
            is_released = mode == "explicit" and chance.randrange(100) < released_percent
            kind = "RELEASE" if is_released else "ACCEPT"
            if mode == "explicit":
                consumer.acknowledge(message, AcknowledgeType[kind])
            said.append((kind, message.partition(), message.offset(), message.delivery_count()))
        if not said:
            continue
        _tell("said", said)
        try:
            results = {one.partition: problem for one, problem in consumer.commit_sync().items()}
        except KafkaException:
            # For example, the node is down: the records are delivered again.
            continue
        _tell("confirmed", [one for one in said if one[1] in results and not results[one[1]]])
    consumer.close()


def _tell(what: str, said: list[tuple[str, int, int, int]]) -> None:
    with _printing:
        sys.stdout.write("".join(f"{what} {a} {b} {c} {d}\n" for a, b, c, d in said))
        sys.stdout.flush()


_printing = threading.Lock()

if __name__ == "__main__":
    main(sys.argv[1:])
