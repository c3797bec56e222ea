"""The topic of the registry: read from its beginning, and written in transactions.

One thread reads; what it has read is applied in the event loop, in order. Writes go through a
transactional producer whose id all instances share. An instance that begins to write fences all
that wrote before. So a leader that was frozen or cut off cannot write when it comes back: no id is
given twice, and nothing is written that was decided on an old state.

A transaction ends with a marker, which is no record. A registry that knows no transactions and
waits until it has read the last offset would wait for ever, so a record that means nothing follows.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from millstream.errors import StartError
from millstream.registry.records import NOOP_KEY

log = logging.getLogger(__name__)

Record = tuple[bytes, bytes | None]

_REQUEST_SECONDS_MAX: Final = 20.0
_WRITE_SECONDS_MAX: Final = 15.0
_PLAIN_SECONDS_MAX: Final = 5.0
_POLL_SECONDS: Final = 0.25
_BATCH_RECORDS_MAX: Final = 500
_PAUSE_SECONDS: Final = 0.1
# While brokers have not heard of a new topic or its leader, or have just started.
_NOT_YET: Final = (
    KafkaError._NOENT,
    KafkaError._TRANSPORT,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
)
_REPLICAS_WANTED: Final = 3
# A transaction is one request long; a leader that dies in it should not stop the next one.
_TRANSACTION_MS_MAX: Final = 10_000


class LogFailed(Exception):
    """The cluster did not take a write, or did not answer. The text says which."""


class LogTimedOut(LogFailed):
    """No answer in time: the write may be there or not."""


class SchemaLog:
    """`apply` is called in the loop with every record, in order, tombstones with None."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        apply: Callable[[bytes, bytes | None], None],
        *,
        group_id: str,
    ) -> None:
        """Instances with the same `group_id` fence each other."""
        self.cluster_id = ""
        self._settings = dict(settings)
        self._topic = topic
        self._apply = apply
        self._group_id = group_id
        self._producer: Producer | None = None
        # Without transactions: for the records that follow them.
        self._plain_producer: Producer | None = None
        # Writes the newest of those.
        self._following: asyncio.Future[Any] | None = None
        # The offset behind the last record that was applied; markers count.
        self._position = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._stopping = threading.Event()
        self._reader: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # One thread, because the calls of a transaction follow each other.
        self._calls = ThreadPoolExecutor(1, thread_name_prefix="registry-writer")

    @property
    def position(self) -> int:
        return self._position

    async def start(self) -> None:
        """Create the topic if it is missing, and read it to its end. Raises StartError."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._call(self._prepare_topic)
            self._reader = threading.Thread(
                target=self._read,
                name="registry-reader",
                args=(self._connect_reader(),),
                daemon=True,
            )
            self._reader.start()
            await self._wait_read_to_end()
        except (KafkaException, LogFailed, TimeoutError) as failed:
            raise StartError(f"topic {self._topic}: {_text(failed)}") from None

    async def stop(self) -> None:
        if self._following is not None:
            await asyncio.wait([self._following], timeout=_PLAIN_SECONDS_MAX)
        self._stopping.set()
        if self._reader is not None:
            await asyncio.to_thread(self._reader.join)
        self._calls.shutdown(wait=False, cancel_futures=True)
        self._producer = self._plain_producer = None

    async def _call(self, function: Callable[..., Any], *arguments: object) -> Any:
        assert self._loop is not None, "not started"
        return await self._loop.run_in_executor(self._calls, function, *arguments)

    # -- the topic --------------------------------------------------------------------

    def _prepare_topic(self) -> None:
        admin = AdminClient(self._settings)
        metadata = admin.list_topics(timeout=_REQUEST_SECONDS_MAX)
        self.cluster_id = metadata.cluster_id or ""
        held = metadata.topics.get(self._topic)
        if held is None:
            self._create_topic(admin, min(_REPLICAS_WANTED, len(metadata.brokers)))
            return
        if len(held.partitions) != 1:
            raise LogFailed(
                f"it has {len(held.partitions)} partitions, and the registry needs exactly one. "
                "Choose another topic"
            )
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        [answer] = admin.describe_configs([resource]).values()
        policy = answer.result(_REQUEST_SECONDS_MAX)["cleanup.policy"].value
        if policy != "compact":
            raise LogFailed(
                f"its cleanup.policy is {policy}, so schemas would be deleted. Set it: "
                f"millstream topic alter {self._topic} -c cleanup.policy=compact"
            )

    def _create_topic(self, admin: AdminClient, replicas: int) -> None:
        wanted = NewTopic(
            self._topic,
            num_partitions=1,
            replication_factor=replicas,
            config={"cleanup.policy": "compact"},
        )
        [answer] = admin.create_topics([wanted]).values()
        try:
            answer.result(_REQUEST_SECONDS_MAX)
        except KafkaException as failed:
            # Another instance was faster.
            if failed.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    # -- reading ----------------------------------------------------------------------

    def _connect_reader(self) -> Consumer:
        consumer = Consumer(
            {
                **self._settings,
                # The library wants one and looks for its coordinator; nothing joins or commits.
                "group.id": self._group_id,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                # Answers of a registry wait for what they wrote to come back.
                "fetch.wait.max.ms": 100,
            }
        )
        consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
        return consumer

    def _read(self, consumer: Consumer) -> None:
        assert self._loop is not None
        while not self._stopping.is_set():
            first = consumer.poll(_POLL_SECONDS)
            if first is None:
                continue
            batch = [first, *consumer.consume(_BATCH_RECORDS_MAX, timeout=0)]
            try:
                self._loop.call_soon_threadsafe(self._take, batch)
            except RuntimeError:
                # The loop has ended without `stop`.
                break
        consumer.close()

    def _take(self, batch: Sequence[Message]) -> None:
        for message in batch:
            error, offset = message.error(), message.offset()
            if error is None:
                assert offset is not None
                self._apply(message.key() or b"", message.value())
                self._position = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                assert offset is not None
                self._position = max(self._position, offset)
            elif not error.retriable():
                log.warning("reading %s: %s", self._topic, error.str())
        for wanted, waiter in self._waiting:
            if wanted <= self._position and not waiter.done():
                waiter.set_result(None)
        self._waiting = [one for one in self._waiting if not one[1].done()]

    async def wait_position(self, wanted: int, timeout_seconds: float) -> None:
        """Until everything before this offset was applied. Raises TimeoutError."""
        if wanted <= self._position:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, waiter))
        async with asyncio.timeout(timeout_seconds):
            await waiter

    async def _wait_read_to_end(self) -> None:
        """Raises KafkaException and TimeoutError."""
        async with asyncio.timeout(_REQUEST_SECONDS_MAX):
            end: int | None = await self._call(self._find_end)
            while end is None:
                await asyncio.sleep(_PAUSE_SECONDS)
                end = await self._call(self._find_end)
            await self.wait_position(end, _REQUEST_SECONDS_MAX)

    def _find_end(self) -> int | None:
        """None while not all brokers know the topic yet, as just after it was created."""
        # A new one each time: it keeps the epoch of the leader that it first saw.
        admin = AdminClient(self._settings)
        place = TopicPartition(self._topic, 0)
        [answer] = admin.list_offsets({place: OffsetSpec.latest()}).values()
        try:
            end: int = answer.result(_REQUEST_SECONDS_MAX).offset
        except KafkaException as failed:
            if failed.args[0].code() in _NOT_YET:
                return None
            raise
        return end

    # -- writing ----------------------------------------------------------------------

    async def begin_writing(self) -> None:
        """Fence all earlier writers, and read what they wrote. Does nothing while this instance is
        the last that began. Raises LogFailed."""
        if self._producer is not None:
            return
        try:
            producer = await self._call(self._connect_writer)
            await self._wait_read_to_end()
        except (KafkaException, TimeoutError) as failed:
            raise LogFailed(_text(failed)) from None
        self._producer = producer

    def _connect_writer(self) -> Producer:
        producer = Producer(
            {
                **self._settings,
                "transactional.id": f"{self._group_id}.{self._topic}",
                "transaction.timeout.ms": _TRANSACTION_MS_MAX,
                "linger.ms": 0,
            }
        )
        producer.init_transactions(_WRITE_SECONDS_MAX)
        return producer

    async def append(self, records: Sequence[Record]) -> None:
        """All of them or none; returns when they have come back and were applied.

        Call `begin_writing` first. Raises LogFailed. After a failure, nothing is written before the
        next `begin_writing`, which finds out what became of the transaction."""
        producer = self._producer
        assert producer is not None, "begin_writing comes first"
        try:
            end = await self._call(self._write, producer, records)
            await self.wait_position(end, _WRITE_SECONDS_MAX)
        except KafkaException as failed:
            self._producer = None
            raise LogFailed(_text(failed)) from None
        except TimeoutError:
            self._producer = None
            raise LogTimedOut("the write was not read back in time") from None
        except BaseException:
            # Also a caller that was cancelled: the transaction may be half done.
            self._producer = None
            raise
        # Nobody waits for it: what was decided is written.
        self._following = asyncio.ensure_future(self._call(self._write_noop))

    def _write(self, producer: Producer, records: Sequence[Record]) -> int:
        """The offset behind the last record."""
        ends: list[int] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                ends.append((message.offset() or 0) + 1)

        producer.begin_transaction()
        for key, value in records:
            producer.produce(self._topic, key=key, value=value, partition=0, on_delivery=delivered)
        producer.commit_transaction(_WRITE_SECONDS_MAX)
        return max(ends)

    def _write_noop(self) -> None:
        if self._plain_producer is None:
            self._plain_producer = Producer({**self._settings, "linger.ms": 0})
        try:
            self._plain_producer.produce(self._topic, key=NOOP_KEY, value=None, partition=0)
            self._plain_producer.flush(_PLAIN_SECONDS_MAX)
        except (KafkaException, BufferError) as failed:
            log.info("no record follows the transaction: %s", failed)


def _text(failed: Exception) -> str:
    if isinstance(failed, KafkaException):
        error: KafkaError = failed.args[0]
        return f"{error.str()} ({error.name()})"
    return str(failed) or "no answer in time"
