"""The share partitions that this node leads: loading them, their locks, and what waits.

`coordinators/share/partition.py` decides who gets which record. Here a share partition meets
its log, its stored state and the time. One belongs to a leader epoch of its partition: after
another election it is forgotten, and the new leader reads what was stored.

Every wait may end in another epoch. So each caller finds the partition again after a wait.
"""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from millstream.broker.coordination.dead_letters import DeadLetters
from millstream.broker.coordination.share_reset import start_offset_of
from millstream.broker.coordination.share_state import ShareStateStore
from millstream.broker.node.state import NodeState
from millstream.config.broker_config import BrokerConfig
from millstream.config.group_config import GroupConfig
from millstream.coordinators.codecs.share_state import NO_START, ShareKey, StoredShare
from millstream.coordinators.share.acknowledging import Acknowledgement, Change
from millstream.coordinators.share.dead_letters import Source
from millstream.coordinators.share.partition import ShareLimits, SharePartition
from millstream.coordinators.share.state_batches import StateBatch
from millstream.coordinators.share.stored import Written
from millstream.errors import KafkaCode, KafkaError
from millstream.replication.partition import Partition
from millstream.replication.waiting import FetchWaits

log = logging.getLogger(__name__)

# Groups whose options are known; with more, all are read again.
_CONFIGS_KEPT_MAX: Final = 10_000
# Nobody names a group like that, but an id may have 32 KB, and any client may invent some.
_KEPT_ID_LENGTH_MAX: Final = 256
_NO_OVERRIDES: Final[dict[str, str]] = {}
# Written together, before their records are archived.
_LETTERS_AT_ONCE: Final = 500
# While dead letters cannot be written, it is tried again after these seconds.
_LETTER_RETRY_SECONDS: Final = (0.1, 0.5, 2.0, 5.0, 15.0, 30.0)

# A state that could not be read is not asked for again before that: any client may ask for
# thousands of them, as often as it likes.
_FAILED_SECONDS: Final = 1.0
# So many are begun to be read in one iteration of the loop.
_LOADS_AT_ONCE: Final = 10

# What clients see of problems with the share coordinator, as in Kafka.
_SHOWN: Final = {
    KafkaCode.NOT_COORDINATOR: KafkaCode.COORDINATOR_NOT_AVAILABLE,
    KafkaCode.COORDINATOR_LOAD_IN_PROGRESS: KafkaCode.COORDINATOR_NOT_AVAILABLE,
    KafkaCode.COORDINATOR_NOT_AVAILABLE: KafkaCode.COORDINATOR_NOT_AVAILABLE,
    KafkaCode.NETWORK_EXCEPTION: KafkaCode.COORDINATOR_NOT_AVAILABLE,
    KafkaCode.GROUP_ID_NOT_FOUND: KafkaCode.GROUP_ID_NOT_FOUND,
    KafkaCode.UNKNOWN_TOPIC_OR_PARTITION: KafkaCode.UNKNOWN_TOPIC_OR_PARTITION,
    KafkaCode.FENCED_LEADER_EPOCH: KafkaCode.NOT_LEADER_OR_FOLLOWER,
    KafkaCode.FENCED_STATE_EPOCH: KafkaCode.NOT_LEADER_OR_FOLLOWER,
}
# After these the state here is outdated: it is read again.
_FENCED: Final = frozenset(
    {
        KafkaCode.NOT_LEADER_OR_FOLLOWER,
        KafkaCode.GROUP_ID_NOT_FOUND,
        KafkaCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


@dataclass(slots=True, eq=False)
class LedShare:
    """A share partition in one leader epoch. `share` is None until its state is read."""

    key: ShareKey
    partition: Partition
    leader_epoch: int
    share: SharePartition | None = None
    state_epoch: int = 0
    # Fetches that wait for a record to become available.
    waits: FetchWaits = field(default_factory=FetchWaits)
    # Ends locks and delays; None while there is nothing to end.
    timer: asyncio.TimerHandle | None = None
    # When it rings.
    rings_ms: int = 0
    is_dropped: bool = False
    is_writing_letters: bool = False
    # No member fetches, but dead letters have to be written before this is forgotten.
    is_unused: bool = False
    # Why the state could not be read. Forgotten with all of this when the timer rings.
    problem: KafkaError | None = None

    @property
    def is_current(self) -> bool:
        partition = self.partition
        is_same = partition.is_leader and partition.leader_epoch == self.leader_epoch
        return is_same and partition.offline_reason is None and not self.is_dropped


@dataclass(frozen=True, slots=True)
class _KnownConfig:
    """The options of a group on a node with those options."""

    config: GroupConfig
    limits: ShareLimits
    node_config: BrokerConfig

    def is_of(self, node_config: BrokerConfig, overrides: Mapping[str, str]) -> bool:
        # Overrides are changed in place; the node's options are a new object after every change.
        return self.node_config is node_config and self.config.overrides == overrides


class SharePartitions:
    def __init__(self, node: NodeState, state: ShareStateStore, dead_letters: DeadLetters) -> None:
        self._node = node
        self._state = state
        self._dead_letters = dead_letters
        self._led: dict[ShareKey, LedShare] = {}
        # Changes that are being stored, whether the share partition is still known or not.
        self._writes: dict[ShareKey, set[asyncio.Future[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._configs: dict[str, _KnownConfig] = {}
        self._loads = asyncio.Semaphore(_LOADS_AT_ONCE)

    async def stop(self) -> None:
        for led in list(self._led.values()):
            self._drop(led)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def all(self) -> list[LedShare]:
        return [led for led in self._led.values() if led.is_current]

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- finding and loading ------------------------------------------------------------

    def find(self, key: ShareKey) -> LedShare | None:
        """If it is loaded, and this node still leads it."""
        led = self._led.get(key)
        if led is None:
            return None
        if not led.is_current:
            self._drop(led)
            return None
        return led if led.share is not None else None

    def find_or_load(self, key: ShareKey, partition: Partition) -> LedShare:
        """While its state is being read, `share` is None, and `waits` are woken after that. If that
        has failed a moment ago, `problem` says why."""
        led = self._led.get(key)
        if led is not None and not (led.is_current and led.partition is partition):
            self._drop(led)
            led = None
        if led is None:
            led = self._led[key] = LedShare(key, partition, partition.leader_epoch)
            self.spawn(self._load(led))
        if led.share is not None:
            led.is_unused = False
            led.share.limits = self.limits_of(key.group_id)
            log_start = partition.log.log_start_offset
            if log_start > led.share.start_offset:
                led.share.log_starts_at(log_start)
        return led

    async def _load(self, led: LedShare) -> None:
        try:
            async with self._loads:
                await asyncio.sleep(0)
            await self._read(led)
        except KafkaError as error:
            # Any client may ask for any group.
            log.debug("cannot load share partition %s: %s", led.key.name, error)
            self._not_loaded(led, shown(error))
        except ValueError as error:
            log.error("share partition %s: %s", led.key.name, error)
            self._not_loaded(led, KafkaError(KafkaCode.UNKNOWN_SERVER_ERROR, str(error)))
        led.waits.wake()

    def _not_loaded(self, led: LedShare, problem: KafkaError) -> None:
        led.problem = problem
        if not led.is_dropped:
            led.timer = asyncio.get_running_loop().call_later(_FAILED_SECONDS, self._drop, led)

    async def _read(self, led: LedShare) -> None:
        key = led.key
        if key in self._writes:
            # Of this node itself, before it forgot the partition: they would not be fenced, and
            # what is read now might lack them.
            await asyncio.wait(self._writes[key])
        known = await self._state.read(key, leader_epoch=led.leader_epoch)
        start_offset = known.start_offset
        if start_offset == NO_START:
            config = self.config_of(key.group_id)
            rule = config.string("share.auto.offset.reset")
            start_offset = start_offset_of(rule, led.partition, now_ms=self._node.clock.now_ms())
            # Decided once: after a crash, "latest" would be another offset.
            start = Written(known.state_epoch, led.leader_epoch, start_offset, 0, ())
            write = self._state.write(key, start)
            if not isinstance(write, StoredShare):
                await write
        led.state_epoch = known.state_epoch
        share = SharePartition(
            self.limits_of(key.group_id), start_offset=start_offset, stored=known.batches
        )
        if led.is_current:
            led.share = share
            self._write_dead_letters(led, share)

    def config_of(self, group_id: str) -> GroupConfig:
        return self._known(group_id).config

    def limits_of(self, group_id: str) -> ShareLimits:
        """Those in force now; every request asks."""
        return self._known(group_id).limits

    def _known(self, group_id: str) -> _KnownConfig:
        overrides = self._node.image.group_overrides.get(group_id, _NO_OVERRIDES)
        known = self._configs.get(group_id)
        if known is not None and known.is_of(self._node.config, overrides):
            return known
        config = GroupConfig(self._node.config, overrides)
        known = _KnownConfig(config, _limits(config), self._node.config)
        if len(group_id) <= _KEPT_ID_LENGTH_MAX:
            if len(self._configs) >= _CONFIGS_KEPT_MAX:
                self._configs.clear()
            self._configs[group_id] = known
        return known

    def _drop(self, led: LedShare) -> None:
        led.is_dropped = True
        _disarm(led)
        if self._led.get(led.key) is led:
            del self._led[led.key]
        led.waits.wake()

    def forget_group(self, group_id: str) -> None:
        """No member fetches any more: the state is read again if one comes back."""
        for led in [one for key, one in self._led.items() if key.group_id == group_id]:
            if led.share is not None and led.share.dead:
                led.is_unused = True
            else:
                self._drop(led)

    def forget_topic(self, topic_id: UUID) -> None:
        for led in [one for key, one in self._led.items() if key.topic_id == topic_id]:
            self._drop(led)

    # -- changes ------------------------------------------------------------------------

    def acknowledge(
        self, led: LedShare, member_id: str, asked: Sequence[Acknowledgement]
    ) -> Change:
        """Begin a change, which has to be given to `store`. Raises KafkaError."""
        assert led.share is not None
        led.share.limits = self.limits_of(led.key.group_id)
        change = led.share.acknowledge(member_id, asked, now_ms=self._node.now_ms())
        self.arm(led)
        return change

    async def release(self, led: LedShare, member_id: str) -> None:
        """Give back what a member has acquired. Raises KafkaError."""
        assert led.share is not None
        led.share.limits = self.limits_of(led.key.group_id)
        stored = self.store(led, led.share, led.share.release(member_id))
        if stored is not None:
            await stored

    def store(
        self, led: LedShare, share: SharePartition, change: Change
    ) -> Coroutine[Any, Any, None] | None:
        """None if the change is committed, or else what ends when it is. Both raise KafkaError."""
        if not change.parts:
            return None
        try:
            write = self._write(led, share, change.state_batches())
        except KafkaError:
            self._not_stored(led, share, change)
            raise
        if write is not None:
            return self._store_later(led, share, change, write)
        self._stored(led, share, change)
        return None

    async def _store_later(
        self, led: LedShare, share: SharePartition, change: Change, write: Coroutine[Any, Any, None]
    ) -> None:
        try:
            await write
        except KafkaError:
            self._not_stored(led, share, change)
            raise
        self._stored(led, share, change)

    def _stored(self, led: LedShare, share: SharePartition, change: Change) -> None:
        share.stored(change)
        led.waits.wake()
        self._write_dead_letters(led, share)

    def _not_stored(self, led: LedShare, share: SharePartition, change: Change) -> None:
        share.not_stored(change, now_ms=self._node.now_ms())
        # Locks that go on may end before the timer would ring: it was set without them.
        _disarm(led)
        self.arm(led)
        led.waits.wake()
        self._write_dead_letters(led, share)

    def _write(
        self, led: LedShare, share: SharePartition, batches: Sequence[StateBatch]
    ) -> Coroutine[Any, Any, None] | None:
        """None if it is committed, or else what ends when it is. Both raise KafkaError."""
        # A power cut must not remove records whose fate it keeps: others would get their offsets.
        end = max(batch.last for batch in batches) + 1
        wait = self._node.disk.durability.wait_if_needed(led.partition, end, is_acks_all=True)
        if wait is not None:
            return self._write_after(wait, led, share, batches)
        return self._write_state(led, share, batches)

    async def _write_after(
        self,
        wait: "asyncio.Future[None]",
        led: LedShare,
        share: SharePartition,
        batches: Sequence[StateBatch],
    ) -> None:
        await wait
        write = self._write_state(led, share, batches)
        if write is not None:
            await write

    def _write_state(
        self, led: LedShare, share: SharePartition, batches: Sequence[StateBatch]
    ) -> Coroutine[Any, Any, None] | None:
        if not led.is_current:
            raise KafkaError(KafkaCode.NOT_LEADER_OR_FOLLOWER)
        written = Written(
            led.state_epoch,
            led.leader_epoch,
            share.start_offset,
            share.finished_count,
            tuple(batches),
        )
        try:
            answer = self._state.write(led.key, written)
        except KafkaError as error:
            raise self._refused(led, error) from error
        if isinstance(answer, StoredShare):
            return None
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writes.setdefault(led.key, set()).add(ended)
        return self._await_write(led, answer, ended)

    async def _await_write(
        self, led: LedShare, write: Awaitable[StoredShare], ended: "asyncio.Future[None]"
    ) -> None:
        writes = self._writes[led.key]
        try:
            await write
        except KafkaError as error:
            raise self._refused(led, error) from error
        finally:
            ended.set_result(None)
            writes.discard(ended)
            if not writes:
                del self._writes[led.key]

    def _refused(self, led: LedShare, error: KafkaError) -> KafkaError:
        """The share coordinator's problem, as clients see it."""
        problem = shown(error)
        if problem.code in _FENCED:
            log.info("share partition %s is fenced: %s", led.key.name, error)
            self._drop(led)
        return problem

    # -- locks --------------------------------------------------------------------------

    def arm(self, led: LedShare) -> None:
        """Have locks ended in time that begin now, and all others if no timer is set. It may ring
        early: then it is set again."""
        share = led.share
        if share is None or led.is_dropped:
            return
        if led.timer is not None:
            # It may be set for a delayed record, or for a lock from when locks were longer.
            if led.rings_ms <= self._node.now_ms() + share.limits.lock_ms:
                return
            _disarm(led)
        end_ms = share.next_deadline_ms()
        if end_ms is None:
            return
        delay = max(end_ms / 1000 - self._node.clock.monotonic(), 0)
        led.rings_ms = end_ms
        led.timer = asyncio.get_running_loop().call_later(delay, self._ring, led)

    def held_back(self, led: LedShare, archived: Sequence[StateBatch]) -> None:
        """Records were delayed, or have expired. `arm` has to follow: the former may be due
        before the timer would ring."""
        _disarm(led)
        if archived and led.share is not None:
            self.spawn(self._store_ended(led, led.share, archived))

    def _ring(self, led: LedShare) -> None:
        led.timer = None
        share = led.share
        if share is None or not led.is_current:
            return
        # A loop timer may fire slightly early.
        now_ms = self._node.now_ms() + 1
        share.limits = self.limits_of(led.key.group_id)
        if share.end_delays(now_ms):
            led.waits.wake()
        ended = share.expire(now_ms)
        if ended:
            led.waits.wake()
            self.spawn(self._store_ended(led, share, ended))
            self._write_dead_letters(led, share)
        self.arm(led)

    async def _store_ended(
        self, led: LedShare, share: SharePartition, ended: Sequence[StateBatch]
    ) -> None:
        """Locks are over, or records archived, whether that can be stored or not."""
        try:
            write = self._write(led, share, ended)
            if write is not None:
                await write
        except KafkaError as error:
            log.info("what ended in %s is not stored: %s", led.key.name, error)

    # -- dead letters -------------------------------------------------------------------

    def _write_dead_letters(self, led: LedShare, share: SharePartition) -> None:
        if share.dead and not led.is_writing_letters:
            led.is_writing_letters = True
            self.spawn(self._write_letters(led, share))

    async def _write_letters(self, led: LedShare, share: SharePartition) -> None:
        """Until none is left, or another node leads: it finds what was not archived."""
        try:
            await self._write_all_letters(led, share)
        finally:
            led.is_writing_letters = False
        if led.is_unused and not share.dead:
            self._drop(led)

    async def _write_all_letters(self, led: LedShare, share: SharePartition) -> None:
        failed = 0
        where = led.partition.topic_partition
        source = Source(led.key.group_id, where.topic, where.partition)
        while led.is_current and (dead := share.dead.next(_LETTERS_AT_ONCE)):
            config = self.config_of(led.key.group_id)
            try:
                await self._dead_letters.write(source, config, dead, led.partition)
            except KafkaError as error:
                seconds = _LETTER_RETRY_SECONDS[min(failed, len(_LETTER_RETRY_SECONDS) - 1)]
                failed += 1
                log.warning(
                    "dead letters of %s are not written, next attempt in %g s: %s",
                    *(led.key.name, seconds, error),
                )
                await asyncio.sleep(seconds)
                continue
            failed = 0
            archived = share.dead_letters_written(dead)
            led.waits.wake()
            await self._store_ended(led, share, archived)


def _disarm(led: LedShare) -> None:
    if led.timer is not None:
        led.timer.cancel()
        led.timer = None


def _limits(config: GroupConfig) -> ShareLimits:
    return ShareLimits(
        deliveries_max=config.int("share.delivery.count.limit"),
        in_flight_max=config.int("share.partition.max.record.locks"),
        lock_ms=config.int("share.record.lock.duration.ms"),
        may_renew=config.boolean("share.renew.acknowledge.enable"),
        has_dead_letters=bool(config.string("errors.deadletterqueue.topic.name")),
    )


def shown(error: KafkaError) -> KafkaError:
    """A problem with the share coordinator, as clients see it."""
    code = _SHOWN.get(error.code, KafkaCode.UNKNOWN_SERVER_ERROR)
    return KafkaError(code, error.message or "")
