"""A producer that waits instead of losing records: for commands that send for a long time.

Its queue is bounded, so reading stops when the broker is slower than the file. Without a
time limit it waits for a broker that is down.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from millstream.cli.bootstrap import PARTITIONER, client_settings, explain
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.first_contact import BrokerWatch
from millstream.cli.record_sender import serve, start_producer

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

# Bytes read from files but not acknowledged: bounds the memory, and what a crash repeats.
_QUEUE_KBYTES_MAX: Final = 32 * 1024

Acknowledge = Callable[[], None]


class Stopped(Exception):
    """A record was not sent: it would have waited for room after `stop`."""


class Sender:
    """Sends records with acks=all, in order for each key, without duplicates from retries."""

    def __init__(self, bootstrap: str, topic: str, *, delivery_seconds_max: float | None) -> None:
        self.acknowledged_count = 0
        self._topic = topic
        self._refused: KafkaError | None = None
        self._is_stopped = False
        self._is_endless = delivery_seconds_max is None
        self._watch = BrokerWatch(bootstrap)
        timeout_ms = 0 if delivery_seconds_max is None else round(delivery_seconds_max * 1000)
        self._producer = start_producer(
            {
                **client_settings(bootstrap),
                "partitioner": PARTITIONER,
                "error_cb": self._watch.on_error,
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
                if self._is_stopped:
                    raise Stopped from None
                # The queue is full: acknowledgements make room.
                serve(self._producer, 0.1)

    def stop(self) -> None:
        """From now on a record that finds no room raises Stopped. For handlers of signals."""
        self._is_stopped = True

    def poll(self, seconds: float) -> None:
        """Let acknowledgements arrive."""
        serve(self._producer, seconds)
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
        if self._is_endless:
            return
        try:
            self._watch.check()
        except CommandFailed as gone:
            counts = f"{self.acknowledged_count:,} records were acknowledged"
            raise CommandFailed(
                f"{gone}; {counts}, {self.waiting_count:,} were not", exit_code=gone.exit_code
            ) from None
