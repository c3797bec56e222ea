"""One connection to a leader's node, over which partitions are fetched, one request at a time.

The replica fetcher chooses the partitions and handles the responses. An added partition does
not wait for a long poll to end: the connection is closed, and the next request includes it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from millstream.client.aio import AnswerMemory, Connection, NoAnswer
from millstream.client.fetch import (
    BY_FOLLOWERS,
    Fetched,
    FetchLimits,
    Topic,
    read_fetched,
    write_fetch,
)
from millstream.client.security import PLAINTEXT, Security
from millstream.clock import Clock
from millstream.errors import KafkaCode, ProtocolError
from millstream.replication.busy_and_quiet import QuietRule
from millstream.replication.following import FetchPosition
from millstream.replication.replicated import ReplicatedPartition
from millstream.wire.apis.fetch import FetchRequest
from millstream.wire.fetch import FetchPartition

log = logging.getLogger(__name__)
# The first pause after a failure; each further one is twice as long.
PAUSE_SECONDS_MIN: Final = 0.02
_CONNECT_SECONDS_MAX: Final = 5.0

Asked = dict[tuple[Topic, int], tuple[ReplicatedPartition, FetchPosition]]


@dataclass(frozen=True, slots=True)
class FetcherSettings:
    wait_ms: int
    min_bytes: int
    partition_bytes: int
    response_bytes: int
    timeout_seconds: float
    pause_seconds_max: float


@dataclass(frozen=True, slots=True)
class FetcherNode:
    """What a fetcher needs from its node, for every request."""

    broker_id: int
    broker_epoch: Callable[[], int]
    # The address of the leader's node; None while it is unknown.
    address: Callable[[int], tuple[str, int] | None]
    # Have the other end of a new connection know this node.
    prove: Callable[[Connection], Awaitable[None]]
    checkpoint: Callable[[], Awaitable[None]]
    # Is a partition throttled at this moment; and report the bytes fetched for it.
    is_held_back: Callable[[ReplicatedPartition], bool]
    took: Callable[[ReplicatedPartition, int], None]
    # A leader has answered, and takes this node for a living one.
    heard: Callable[[int], None]
    # To wait for before a position counts, if every replica syncs first.
    wait_counted: Callable[[ReplicatedPartition], Awaitable[None] | None]
    clock: Clock
    settings: Callable[[], FetcherSettings]
    # How to connect to the leader's node.
    security: Callable[[], Security] = lambda: PLAINTEXT
    quiet_rule: QuietRule = field(default_factory=QuietRule)


@dataclass(frozen=True, slots=True)
class FetchTask:
    """The partitions of one connection."""

    # What to fetch now, and after how many seconds that changes.
    wanted: Callable[[], Asked]
    due_seconds: Callable[[], float | None]
    take: Callable[[Asked, list[Fetched]], Awaitable[None]]
    # Called with a problem; with None when it works again.
    tell: Callable[[str], None]


class FetchConnection:
    def __init__(self, leader_id: int, node: FetcherNode, task: FetchTask) -> None:
        self._leader_id = leader_id
        self._node = node
        self._fetches = task
        self._changed = asyncio.Event()
        self._connection: Connection | None = None
        # A response is applied before the next request is sent, and nothing of it is kept.
        self._memory = AnswerMemory()
        self._is_asking = False
        self._pause_seconds = PAUSE_SECONDS_MIN
        self._task = asyncio.get_running_loop().create_task(self._run())

    def fetch_again(self) -> None:
        """There is more to fetch than in the last request."""
        self._changed.set()
        if self._is_asking and self._connection is not None:
            self._connection.close()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while True:
                try:
                    await self._step()
                except Exception as error:
                    # Without this task, nothing that the leader's node leads is followed.
                    log.exception("cannot fetch from node %d; it is tried again", self._leader_id)
                    await self._back_off(repr(error))
        finally:
            self._hang_up()

    async def _step(self) -> None:
        self._changed.clear()
        asked = self._fetches.wanted()
        if not asked:
            await self._sleep(self._fetches.due_seconds())
            return
        try:
            if self._connection is None:
                # That takes a while, and meanwhile partitions are added: decide again what to ask.
                self._connection = await self._connect()
                return
            answers = await self._exchange(self._connection, asked)
        except (NoAnswer, ProtocolError) as error:
            await self._back_off(str(error))
            return
        if answers is not None:
            # A leader for which this node is dead answers nothing else: it has been replaced.
            if any(each.code != KafkaCode.STALE_BROKER_EPOCH for each in answers):
                self._node.heard(self._leader_id)
            self._fetches.tell("")
            await self._fetches.take(asked, answers)
            self._pause_seconds = PAUSE_SECONDS_MIN

    async def _back_off(self, problem: str) -> None:
        self._hang_up()
        self._fetches.tell(problem)
        await self._sleep(self._pause_seconds)
        longest = self._node.settings().pause_seconds_max
        self._pause_seconds = min(self._pause_seconds * 2, longest)

    async def _sleep(self, seconds: float | None) -> None:
        """Wait until something changes, at most this long."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _exchange(self, connection: Connection, asked: Asked) -> list[Fetched] | None:
        """The responses; None if partitions were added and all is requested again."""
        settings = self._node.settings()
        due = self._fetches.due_seconds()
        wait_ms = settings.wait_ms if due is None else min(settings.wait_ms, int(due * 1000))
        out = connection.begin(FetchRequest.api, BY_FOLLOWERS)
        write_fetch(
            out,
            BY_FOLLOWERS,
            _by_topic(asked, settings.partition_bytes),
            FetchLimits(max(wait_ms, 0), settings.min_bytes, settings.response_bytes),
            replica=(self._node.broker_id, self._node.broker_epoch()),
        )
        self._is_asking = True
        try:
            cursor = await connection.exchange(
                out, timeout_seconds=settings.timeout_seconds, memory=self._memory
            )
        except NoAnswer:
            if not self._changed.is_set():
                raise
            self._hang_up()
            return None
        finally:
            self._is_asking = False
        return list(read_fetched(cursor, BY_FOLLOWERS))

    async def _connect(self) -> Connection:
        address = self._node.address(self._leader_id)
        if address is None:
            raise NoAnswer("its address is not known")
        connection = await Connection.open(
            *address,
            client_id=f"replica-{self._node.broker_id}",
            timeout_seconds=_CONNECT_SECONDS_MAX,
            security=self._node.security(),
        )
        try:
            await self._node.prove(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _by_topic(asked: Asked, partition_bytes: int) -> list[tuple[Topic, list[FetchPartition]]]:
    topics: dict[Topic, list[FetchPartition]] = {}
    for (topic_id, index), (partition, position) in asked.items():
        topics.setdefault(topic_id, []).append(
            FetchPartition(
                index,
                position.offset,
                partition_bytes,
                position.leader_epoch,
                position.last_epoch,
                partition.log.log_start_offset,
            )
        )
    return list(topics.items())
