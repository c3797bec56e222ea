"""A producer that waits instead of losing records: for commands that send for a long time.

Its queue is bounded, so reading stops when the broker is slower than the file. Without a
time limit it waits for a broker that is down.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from millstream.cli.bootstrap import client_settings, explain
from millstream.cli.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message
    from rich.status import Status

# Bytes read from files but not acknowledged: bounds the memory, and what a crash repeats.
_QUEUE_KBYTES_MAX: Final = 32 * 1024
_PROGRESS_AFTER_SECONDS: Final = 0.5
_PLAIN_EVERY_SECONDS: Final = 10.0

Acknowledge = Callable[[], None]


class Sender:
    """Sends records with acks=all, in order for each key, without duplicates from retries."""

    def __init__(self, bootstrap: str, topic: str, *, delivery_seconds_max: float | None) -> None:
        from confluent_kafka import Producer

        self.acknowledged_count = 0
        self._topic = topic
        self._refused: KafkaError | None = None
        timeout_ms = 0 if delivery_seconds_max is None else round(delivery_seconds_max * 1000)
        self._producer = Producer(
            {
                **client_settings(bootstrap),
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 20,
                "message.timeout.ms": timeout_ms,
                "queue.buffering.max.kbytes": _QUEUE_KBYTES_MAX,
            }
        )

    @property
    def waiting_count(self) -> int:
        return len(self._producer)

    def send(
        self,
        value: bytes,
        *,
        key: str,
        timestamp_ms: int | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> None:
        def delivered(error: "KafkaError | None", message: "Message") -> None:
            if error is not None:
                self._refused = self._refused or error
                return
            self.acknowledged_count += 1
            if acknowledge is not None:
                acknowledge()

        while True:
            self._raise_refused()
            try:
                self._producer.produce(
                    self._topic,
                    value=value,
                    key=key,
                    timestamp=timestamp_ms or 0,
                    on_delivery=delivered,
                )
                return
            except BufferError:
                # The queue is full: acknowledgements make room.
                self._producer.poll(0.1)

    def poll(self, seconds: float) -> None:
        """Let acknowledgements arrive."""
        self._producer.poll(seconds)
        self._raise_refused()

    def finish(self, seconds_max: float) -> None:
        deadline = time.monotonic() + seconds_max
        while len(self._producer) and time.monotonic() < deadline:
            self._producer.flush(0.2)
            self._raise_refused()
        if len(self._producer):
            raise CommandFailed(
                f"{len(self._producer):,} records not acknowledged in {seconds_max:.0f} s",
                exit_code=ExitCode.TIMEOUT,
            )

    def _raise_refused(self) -> None:
        if self._refused is not None:
            raise explain(self._refused, f"topic {self._topic}")


class Progress:
    """One line on stderr that is updated; without a terminal, a plain line now and then."""

    def __init__(self, *, quiet: bool) -> None:
        self._is_wanted = not quiet
        self._is_terminal = sys.stderr.isatty() and not os.environ.get("CI")
        self._started = time.monotonic()
        self._last_plain = self._started
        self._status: Status | None = None

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._started

    def show(self, text: Callable[[], str]) -> None:
        if not self._is_wanted or self.elapsed_seconds < _PROGRESS_AFTER_SECONDS:
            return
        if self._is_terminal:
            self._show_live(text())
        elif time.monotonic() - self._last_plain >= _PLAIN_EVERY_SECONDS:
            self._last_plain = time.monotonic()
            print(text(), file=sys.stderr, flush=True)

    def _show_live(self, text: str) -> None:
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status("")
            self._status.start()
        self._status.update(text)

    def stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
