"""Sends a stream of records to a topic, and stops at the first that the broker refuses."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millstream.cli.bootstrap import PARTITIONER, client_settings, explain
from millstream.cli.delayed_acks import Acknowledged, Delay
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.first_contact import BrokerWatch
from millstream.cli.output import counted, echo, print_json
from millstream.cli.progress import Progress
from millstream.cli.record_text import JsonRecord

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_DELIVERY_SECONDS_MAX = 30
_PROGRESS_EVERY_RECORDS = 2_000
_CHECK_EVERY_RECORDS = 1_000
# What was sent may still be acknowledged after Ctrl-C.
_INTERRUPTED_SECONDS_MAX = 2.0
# Without an acknowledgement for this long, the broker may be dead.
_SUSPECT_AFTER_SECONDS = 2.0

# librdkafka asks for a producer id on its first connection, and drops that when it hears of the
# first topic. With no id by then it tries again after half a second; this is enough for one.
_PRODUCER_ID_SECONDS = 0.01


class RecordSender:
    """Passes records to the client and stops at the first one that the broker refuses."""

    def __init__(
        self,
        topic: str,
        producer: "Producer",
        watch: BrokerWatch,
        progress: Progress,
        delay: Delay,
    ) -> None:
        self.sent_count = 0
        self._delay = delay
        self._topic = topic
        self._producer = producer
        self._watch = watch
        self._progress = progress
        self._refused: KafkaError | None = None
        self._refused_count = 0
        self._acknowledged_at = time.monotonic()

    def send_all(self, records: Iterator[JsonRecord | None]) -> None:
        try:
            self._send_until_refused(records)
            left = self._flush(_DELIVERY_SECONDS_MAX + 5)
        except KeyboardInterrupt:
            raise self._interrupted() from None
        finally:
            self._progress.stop()
        if left or self._is_timeout():
            lost = counted(left + self._refused_count, "record")
            raise self._delay.failure(f"{lost} not acknowledged in {_DELIVERY_SECONDS_MAX} s")
        if self._refused is not None:
            raise explain(self._refused, f"topic {self._topic}")

    def _send_until_refused(self, records: Iterator[JsonRecord | None]) -> None:
        try:
            for number, record in enumerate(records):
                if record is not None:
                    self._send(record)
                serve(self._producer, 0)
                if record is None or number % _CHECK_EVERY_RECORDS == 0:
                    self._check_broker()
                if self._refused is not None:
                    break
        except CommandFailed as failed:
            if failed.exit_code != ExitCode.UNREACHABLE:
                # A bad line: what was read before it is sent.
                self._flush(_DELIVERY_SECONDS_MAX + 5)
            raise

    def _interrupted(self) -> CommandFailed:
        left = self._producer.flush(_INTERRUPTED_SECONDS_MAX)
        return CommandFailed(f"interrupted: {self._counts(left)}", exit_code=ExitCode.INTERRUPTED)

    def _counts(self, left: int) -> str:
        acknowledged = counted(self.sent_count, "record")
        return f"{acknowledged} acknowledged, {left + self._refused_count:,} not"

    def _check_broker(self) -> None:
        """Raises CommandFailed if no broker answers, where the client would retry silently."""
        now = time.monotonic()
        if not len(self._producer):
            self._acknowledged_at = now
        elif now - self._acknowledged_at > _SUSPECT_AFTER_SECONDS:
            self._watch.suspect()
        try:
            self._watch.check()
        except CommandFailed as gone:
            left = len(self._producer)
            raise CommandFailed(
                f"{gone} ({self._counts(left)})", exit_code=gone.exit_code
            ) from None

    def _is_timeout(self) -> bool:
        from confluent_kafka import KafkaError

        return self._refused is not None and self._refused.code() == KafkaError._MSG_TIMED_OUT

    def acknowledged(self) -> Acknowledged:
        """For the watching thread: acknowledgements arrive while stdin is waited for."""
        serve(self._producer, 0)
        return Acknowledged(self.sent_count, len(self._producer))

    def _send(self, record: JsonRecord) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=record.value,
                    key=record.key,
                    headers=[*record.headers],
                    partition=-1 if record.partition is None else record.partition,
                    timestamp=record.timestamp_ms or 0,
                    on_delivery=self._delivered,
                )
                return
            except BufferError:
                # The client's queue is full: deliveries make room.
                serve(self._producer, 0.1)
                self._check_broker()
            except KafkaException as failed:
                raise explain(failed.args[0], f"topic {self._topic}") from None

    def _flush(self, seconds_max: float) -> int:
        deadline = time.monotonic() + seconds_max
        while (left := self._producer.flush(0.25)) and time.monotonic() < deadline:
            self._check_broker()
            self._progress.show(self._progress_text)
        return left

    def _delivered(self, error: "KafkaError | None", message: "Message") -> None:
        self._acknowledged_at = time.monotonic()
        if error is None:
            self.sent_count += 1
            if self.sent_count % _PROGRESS_EVERY_RECORDS == 0:
                self._progress.show(self._progress_text)
        else:
            self._refused_count += 1
            self._refused = self._refused or error

    def _progress_text(self) -> str:
        return f"sent {self.sent_count:,} records"


def serve(producer: "Producer", seconds: float) -> None:
    """Let acknowledgements arrive."""
    try:
        producer.poll(seconds)
    except SystemError:
        # confluent-kafka loses the KeyboardInterrupt that ended its wait.
        raise KeyboardInterrupt from None


def print_sent(topic: str, count: int, *, quiet: bool, as_json: bool) -> None:
    """How many records were acknowledged."""
    if as_json:
        print_json({"topic": topic, "records": count})
    elif not quiet:
        echo(f"sent {counted(count, 'record')} to {topic}", err=True)


def connect_producer(
    bootstrap: str,
    watch: BrokerWatch,
    compression: str,
    acks: str,
    *,
    transactional_id: str | None = None,
) -> "Producer":
    settings = {
        "partitioner": PARTITIONER,
        "compression.type": compression,
        "acks": acks,
        "message.timeout.ms": _DELIVERY_SECONDS_MAX * 1000,
        "linger.ms": 5,
        # A client option that the user names has the last word.
        **client_settings(bootstrap),
        "error_cb": watch.on_error,
    }
    if transactional_id is not None:
        settings["transactional.id"] = transactional_id
    # Retries must not reorder or repeat lines; only acks=all can promise that.
    settings.setdefault("enable.idempotence", str(settings["acks"]) in ("all", "-1"))
    return start_producer(settings)


def start_producer(settings: dict[str, Any]) -> "Producer":
    from confluent_kafka import Producer

    producer = Producer(settings)
    if str(settings["enable.idempotence"]).lower() == "true":
        time.sleep(_PRODUCER_ID_SECONDS)
    return producer
