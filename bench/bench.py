"""What the parts share: both brokers, running side by side, and rounds that alternate.

Both are up for the whole run, so an idle one costs both the same. Kafka is warmed before its
first round; in a full run every measurement begins with one round of each that does not count
(Kafka's first ones are compiled on the way). The file system is synced between rounds, so
that no round pays for another's writes.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from bench import clients, frames
from bench.brokers import Broker, Kafka, Millstream
from bench.replay import replay, write_frames
from millstream.model import Codec

T = TypeVar("T")
U = TypeVar("U")
WARM_UP_SECONDS = 12.0


@dataclass(frozen=True, slots=True)
class Compared(Generic[T]):
    """The rounds of one measurement, in the order they ran."""

    ours: list[T]
    kafka: list[T]

    def values(self, pick: Callable[[T], U]) -> tuple[list[U], list[U]]:
        return [pick(one) for one in self.ours], [pick(one) for one in self.kafka]


class Bench:
    def __init__(self, folder: Path, *, is_quick: bool) -> None:
        self.folder = folder
        self.is_quick = is_quick
        self.rounds = 2 if is_quick else 3
        # Of clients that are processes, which take seconds to start.
        self.client_rounds = 2 if is_quick else 3
        self.uncounted_rounds = 0 if is_quick else 1
        self.round_seconds = 1.0 if is_quick else 2.0
        self.round_bytes_max = 600_000_000 if is_quick else 1_500_000_000
        self._began = time.monotonic()
        self._running: dict[str, Broker] = {}
        self._numbers = itertools.count()

    def say(self, text: str) -> None:
        seconds = int(time.monotonic() - self._began)
        print(f"[{seconds // 60:2}:{seconds % 60:02}] {text}", file=sys.stderr, flush=True)

    def path(self, name: str) -> Path:
        return self.folder / f"{next(self._numbers)}-{name}"

    # -- the brokers ----------------------------------------------------------------

    @property
    def ours(self) -> Broker:
        """Our node as `--dev`: acks=all answers from the page cache, as Kafka's does."""
        return self._start("dev", lambda: Millstream(self.path("millstream"), "--dev"))

    @property
    def synced(self) -> Broker:
        """Our node as users get it: acks=all waits for the disk."""
        return self._start("synced", lambda: Millstream(self.path("millstream-synced")))

    @property
    def kafka(self) -> Broker:
        return self._start("kafka", lambda: Kafka(self.path("kafka")), warms_up=True)

    def _start(self, key: str, make: Callable[[], Broker], *, warms_up: bool = False) -> Broker:
        broker = self._running.get(key)
        if broker is None:
            broker = make()
            broker.start()
            self._running[key] = broker
            if warms_up:
                self.say(f"warming {broker.name} for {WARM_UP_SECONDS:.0f} s")
                self._warm(broker)
        return broker

    def _warm(self, broker: Broker) -> None:
        with self.topic(broker) as name:
            data = frames.batch(
                record_bytes=1024, count=15, codec=Codec.NONE, timestamp_ms=now_ms()
            )
            load = frames.produce_load(name, [data], acks=1)
            path = self.path("warm.frames")
            write_frames(load, path)
            for options in (["--in-flight", "8"], ["--connections", "64"]):
                seconds = str(WARM_UP_SECONDS / 2)
                replay(broker.port, path, load, *options, "--seconds", seconds)
            path.unlink()

    def stop(self) -> None:
        for broker in self._running.values():
            broker.stop()
        self._running.clear()

    def restart(self, broker: Broker) -> None:
        broker.stop()
        broker.start()

    # -- rounds ---------------------------------------------------------------------

    def compare(
        self,
        name: str,
        measure: Callable[[Broker], T],
        *,
        ours: Broker | None = None,
        rounds: int | None = None,
    ) -> Compared[T]:
        """Rounds of `measure`, alternating; number 0, if there is one, does not count."""
        pair = (self.kafka, ours or self.ours)
        last = rounds or self.rounds
        found: Compared[T] = Compared([], [])
        for round_number in range(1 - self.uncounted_rounds, last + 1):
            for broker in pair:
                os.sync()
                self.say(f"{name}: {broker.name}, round {round_number} of {last}")
                measured = measure(broker)
                if round_number > 0:
                    (found.kafka if broker is self.kafka else found.ours).append(measured)
        return found

    # -- topics and loads -----------------------------------------------------------

    @contextmanager
    def topic(
        self, broker: Broker, *, partitions: int = 1, config: dict[str, str] | None = None
    ) -> Iterator[str]:
        """A topic of its own, deleted afterwards."""
        name = f"bench-{next(self._numbers)}"
        clients.create_topic(broker.bootstrap, name, partitions=partitions, config=config or {})
        try:
            yield name
        finally:
            clients.delete_topic(broker.bootstrap, name)


def now_ms() -> int:
    return int(time.time() * 1000)
