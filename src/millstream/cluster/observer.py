"""Keeps a node's image of the cluster as the coordination store has it.

A watch is a hint: it marks what to read again. One round reads everything that is marked,
puts it into the image in one go, and tells the listeners once what is different. Between
two rounds the image stands still, and nobody but the loop ever touches it.

A partition's state enters the image only if its version is larger than the one there, so
that neither an old answer nor a slow ZooKeeper server takes it back.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, TypeVar

from millstream.cluster import znodes
from millstream.cluster.coordination import (
    CoordinationFailed,
    CoordinationStore,
    Node,
    NoNode,
    OnChange,
    SessionEnded,
)
from millstream.cluster.state import (
    BrokerState,
    ClusterImage,
    Incarnation,
    PartitionState,
    TopicState,
)
from millstream.model import TopicPartition

log = logging.getLogger(__name__)

# Reads under way at once; more would only wait in the driver.
_READS_AT_ONCE: Final = 500
_RETRY_SECONDS: Final = 0.2

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class ImageChange:
    """What one round made different. A topic that was made anew is in both of the first two."""

    deleted: tuple[TopicState, ...] = ()
    created: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    configs: tuple[str, ...] = ()
    # Which brokers came, went, or told something new about themselves.
    brokers: tuple[int, ...] = ()
    has_broker_configs: bool = False
    has_controller: bool = False
    has_incarnations: bool = False

    @property
    def is_empty(self) -> bool:
        return self == ImageChange()


@dataclass(frozen=True, slots=True)
class _Controller:
    broker_id: int
    epoch: int
    epoch_version: int


@dataclass(slots=True)
class _Round:
    """What was read, not yet in the image."""

    topics: dict[str, TopicState | None] = field(default_factory=dict)
    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    registrations: dict[int, BrokerState | None] = field(default_factory=dict)
    incarnations: dict[int, Incarnation] = field(default_factory=dict)
    handled: dict[int, int] = field(default_factory=dict)
    broker_configs: dict[int | None, dict[str, str]] = field(default_factory=dict)
    group_configs: dict[str, dict[str, str]] | None = None
    controller: "_Controller | None" = None


# What to read again: a kind and, for most kinds, which one.
_Mark = tuple[Hashable, ...]


class Observer:
    """One session's eyes. `listeners` are told of every change, on the loop."""

    def __init__(self, store: CoordinationStore, image: ClusterImage) -> None:
        self.image = image
        self.listeners: list[Callable[[ImageChange], None]] = []
        self._store = store
        self._marks: set[_Mark] = set()
        self._is_marked = asyncio.Event()
        self._reading = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        # Nodes that are registered, alive or not.
        self._registrations: dict[int, BrokerState] = {}
        self._entries: dict[str, znodes.TopicEntry] = {}

    async def start(self) -> None:
        """The image is whole when this returns."""
        # What an earlier session saw and is no longer there must go, too.
        self._mark_all()
        await self.refresh()
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(_tell_failure)

    async def stop(self) -> None:
        self.listeners.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def reload(self) -> None:
        """Read everything again, up to whatever was committed before this call."""
        await self._store.sync()
        self._mark_all()
        await self.refresh()

    async def refresh(self) -> None:
        """Read what is marked. Raises CoordinationFailed, and then it stays marked."""
        async with self._reading:
            while self._marks:
                marks, self._marks = self._marks, set()
                self._is_marked.clear()
                try:
                    found = await self._read(marks)
                except BaseException:
                    self._marks |= marks
                    self._is_marked.set()
                    raise
                self._enter(found)

    async def read_again(self, places: Iterable[TopicPartition]) -> None:
        """Partitions as they are in the store, and the nodes they depend on, into the image."""
        for where in places:
            self._mark(("state", where.topic, where.partition))
        await self.read_incarnations()

    async def read_topic(self, name: str) -> None:
        self._mark(("topic", name))
        await self.refresh()

    async def read_incarnations(self) -> None:
        """Which starts there were, and which nodes are alive."""
        for kind in ("epochs", "handled", "brokers"):
            self._mark((kind, "poll"))
        await self.refresh()

    @property
    def registered(self) -> Set[int]:
        """Nodes that have a session, those among them whose epoch is over too."""
        return self._registrations.keys()

    def topic_version(self, name: str) -> int:
        """Of the topic's own node, as it was when its replicas were read."""
        return self._entries[name].version

    def enter_state(self, where: TopicPartition, state: PartitionState) -> None:
        """What this node has just committed need not be read to be known."""
        self._enter(_Round(states={where: state}))

    def poll(self) -> None:
        """Read the few things of which everything else hangs, in case a hint got lost."""
        for mark in _ROOTS:
            self._mark((*mark, "poll"))

    # -- marks ------------------------------------------------------------------------

    def _mark(self, mark: _Mark) -> None:
        self._marks.add(mark)
        self._is_marked.set()

    def _mark_later(self, mark: _Mark) -> None:
        """Somebody is in the middle of a change: reading at once would find it there again."""
        asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._mark, mark)

    def _mark_all(self) -> None:
        for mark in _ROOTS:
            self._mark(mark)
        for name in self.image.topics:
            self._mark(("topic", name))

    def _hint(self, *mark: Hashable) -> OnChange:
        return lambda: self._mark(mark)

    async def _run(self) -> None:
        while True:
            await self._is_marked.wait()
            try:
                await self.refresh()
            except SessionEnded:
                return
            except CoordinationFailed as error:
                log.debug("the cluster cannot be read now: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)

    # -- reading ----------------------------------------------------------------------

    async def _read(self, marks: set[_Mark]) -> _Round:
        found = _Round()
        for mark in sorted(marks, key=str):
            kind, is_poll = mark[0], mark[-1] == "poll"
            match kind:
                case "topics":
                    await self._read_topic_names(found, is_poll)
                case "brokers":
                    await self._read_registrations(found, is_poll)
                case "epochs":
                    await self._read_incarnations(found, is_poll)
                case "handled":
                    await self._read_handled(found, is_poll)
                case "broker_configs":
                    await self._read_broker_configs(found, is_poll)
                case "group_configs":
                    await self._read_group_configs(found, is_poll)
                case "controller":
                    await self._read_controller(found, is_poll)
        topics = [str(mark[1]) for mark in marks if mark[0] == "topic"]
        for name, topic in await _in_parts(topics, self._topic):
            found.topics[name] = topic
        for name in [str(mark[1]) for mark in marks if mark[0] == "config"]:
            found.configs[name] = await self._config(name)
        states = [mark for mark in marks if mark[0] == "state" and mark[1] not in found.topics]
        for mark, state in await _in_parts(states, self._state):
            if state is not None:
                found.states[TopicPartition(str(mark[1]), int(str(mark[2])))] = state
        return found

    async def _read_topic_names(self, found: _Round, is_poll: bool) -> None:
        hint = None if is_poll else self._hint("topics")
        names = await self._store.children(znodes.TOPICS, hint)
        new = [name for name in names if name not in self.image.topics]
        for name, topic in await _in_parts(new, self._topic):
            found.topics[name] = topic
        for name in self.image.topics.keys() - set(names):
            found.topics[name] = None

    async def _topic(self, name: str) -> TopicState | None:
        """The whole topic, None where it is not there or only half."""
        path = znodes.topic_path(name)
        try:
            node = await self._store.get(path, self._hint("topic", name))
        except NoNode:
            return None
        entry = znodes.decode_topic(node)
        if entry is None:
            return None
        try:
            partitions = [
                state
                for _, state in await _in_parts(
                    range(len(entry.replicas)),
                    lambda number: self._state_of(name, entry, number),
                )
            ]
        except NoNode:
            # Deleted while it was read; the hint on its own node comes, or has come.
            return None
        if None in partitions:
            self._mark_later(("topic", name))
            return None
        self._entries[name] = entry
        whole = [state for state in partitions if state is not None]
        return TopicState(name, entry.topic_id, whole, await self._config(name))

    async def _state(self, mark: _Mark) -> PartitionState | None:
        name, number = str(mark[1]), int(str(mark[2]))
        entry = self._entries.get(name)
        if entry is None or number >= len(entry.replicas):
            return None
        try:
            state = await self._state_of(name, entry, number)
        except NoNode:
            return None
        if state is None:
            # Another topic has this name by now.
            self._mark_later(("topic", name))
        return state

    async def _state_of(
        self, name: str, entry: znodes.TopicEntry, number: int
    ) -> PartitionState | None:
        path = znodes.partition_state_path(name, number)
        node = await self._store.get(path, self._hint("state", name, number))
        return znodes.decode_partition(node, entry, number)

    async def _config(self, name: str) -> dict[str, str]:
        try:
            hint = self._hint("config", name)
            return znodes.decode_config(await self._store.get(znodes.topic_config_path(name), hint))
        except NoNode:
            return {}

    async def _read_registrations(self, found: _Round, is_poll: bool) -> None:
        nodes = await self._all_below(znodes.BROKERS, "brokers", is_poll)
        for broker_id, node in nodes.items():
            found.registrations[broker_id] = znodes.decode_broker(broker_id, node)
        for broker_id in self._registrations.keys() - nodes.keys():
            found.registrations[broker_id] = None

    async def _read_incarnations(self, found: _Round, is_poll: bool) -> None:
        nodes = await self._all_below(znodes.EPOCHS, "epochs", is_poll)
        for broker_id, node in nodes.items():
            found.incarnations[broker_id] = znodes.decode_incarnation(node)

    async def _read_handled(self, found: _Round, is_poll: bool) -> None:
        nodes = await self._all_below(znodes.HANDLED, "handled", is_poll)
        for broker_id, node in nodes.items():
            found.handled[broker_id] = int(node.data)

    async def _all_below(self, path: str, mark: str, is_poll: bool) -> dict[int, Node]:
        """The numbered nodes below a path: there are as many as brokers, which is few."""
        hint = None if is_poll else self._hint(mark)
        found = {}
        for name in await self._store.children(path, hint):
            try:
                found[int(name)] = await self._store.get(f"{path}/{name}", hint)
            except NoNode:
                continue
        return found

    async def _read_broker_configs(self, found: _Round, is_poll: bool) -> None:
        hint = None if is_poll else self._hint("broker_configs")
        for name in await self._store.children(znodes.BROKER_CONFIGS, hint):
            broker_id = None if name == znodes.DEFAULT_BROKER else int(name)
            try:
                node = await self._store.get(f"{znodes.BROKER_CONFIGS}/{name}", hint)
            except NoNode:
                continue
            found.broker_configs[broker_id] = znodes.decode_config(node)

    async def _read_group_configs(self, found: _Round, is_poll: bool) -> None:
        hint = None if is_poll else self._hint("group_configs")
        found.group_configs = {}
        for name in await self._store.children(znodes.GROUP_CONFIGS, hint):
            path = f"{znodes.GROUP_CONFIGS}/{name}"
            with contextlib.suppress(NoNode):
                config = znodes.decode_config(await self._store.get(path, hint))
                found.group_configs[znodes.group_of_config_path(path)] = config

    async def _read_controller(self, found: _Round, is_poll: bool) -> None:
        hint = None if is_poll else self._hint("controller")
        epoch = await self._store.get(znodes.CONTROLLER_EPOCH)
        broker_id = -1
        with contextlib.suppress(NoNode):
            if await self._store.exists(znodes.CONTROLLER, hint):
                broker_id = znodes.decode_controller(await self._store.get(znodes.CONTROLLER))
        found.controller = _Controller(broker_id, int(epoch.data), epoch.version)

    # -- into the image ---------------------------------------------------------------

    def _enter(self, found: _Round) -> None:
        changed_topics = self._enter_topics(found)
        if found.group_configs is not None:
            # Whoever needs them looks when a member comes; nobody has to be told.
            self.image.group_overrides = found.group_configs
        change = ImageChange(
            deleted=changed_topics.deleted,
            created=changed_topics.created,
            partitions=changed_topics.partitions + self._enter_states(found),
            configs=changed_topics.configs + self._enter_configs(found),
            has_incarnations=self._enter_incarnations(found),
            brokers=self._enter_brokers(found),
            has_broker_configs=_update(self.image.broker_overrides, found.broker_configs),
            has_controller=self._enter_controller(found),
        )
        if not change.is_empty:
            for listener in tuple(self.listeners):
                listener(change)

    def _enter_topics(self, found: _Round) -> ImageChange:
        deleted: list[TopicState] = []
        created: list[str] = []
        partitions: list[TopicPartition] = []
        configs: list[str] = []
        for name, topic in found.topics.items():
            present = self.image.topics.get(name)
            if present is not None and (topic is None or topic.topic_id != present.topic_id):
                deleted.append(self.image.remove_topic(name))
                present = None
            if topic is None:
                self._entries.pop(name, None)
            elif present is None:
                self.image.add_topic(topic)
                created.append(name)
            else:
                partitions += _merge(present, topic)
                if present.overrides != topic.overrides:
                    present.overrides = topic.overrides
                    configs.append(name)
        return ImageChange(tuple(deleted), tuple(created), tuple(partitions), tuple(configs))

    def _enter_states(self, found: _Round) -> tuple[TopicPartition, ...]:
        changed = []
        for where, state in found.states.items():
            present = self.image.partition(where.topic, where.partition)
            if present is not None and state.version > present.version:
                self.image.topics[where.topic].partitions[where.partition] = state
                changed.append(where)
        return tuple(changed)

    def _enter_configs(self, found: _Round) -> tuple[str, ...]:
        changed = []
        for name, overrides in found.configs.items():
            topic = self.image.topics.get(name)
            if topic is not None and topic.overrides != overrides:
                topic.overrides = overrides
                changed.append(name)
        return tuple(changed)

    def _enter_incarnations(self, found: _Round) -> bool:
        is_new = _update(self.image.incarnations, found.incarnations)
        return _update(self.image.handled, found.handled) or is_new

    def _enter_brokers(self, found: _Round) -> tuple[int, ...]:
        """A node is alive if it is registered by its latest incarnation."""
        for broker_id, registered in found.registrations.items():
            if registered is None:
                self._registrations.pop(broker_id, None)
            else:
                self._registrations[broker_id] = registered
        incarnations = self.image.incarnations
        alive = {
            broker_id: broker
            for broker_id, broker in self._registrations.items()
            if broker_id in incarnations and incarnations[broker_id].epoch == broker.epoch
        }
        before = self.image.brokers
        changed = [
            broker_id
            for broker_id in sorted(before.keys() | alive.keys())
            if before.get(broker_id) != alive.get(broker_id)
        ]
        self.image.brokers = alive
        return tuple(changed)

    def _enter_controller(self, found: _Round) -> bool:
        read = found.controller
        if read is None:
            return False
        is_new = read.broker_id != self.image.controller_id
        self.image.controller_id = read.broker_id
        self.image.controller_epoch = read.epoch
        self.image.controller_epoch_version = read.epoch_version
        return is_new


_ROOTS: Final[tuple[_Mark, ...]] = (
    ("topics",),
    ("brokers",),
    ("epochs",),
    ("handled",),
    ("broker_configs",),
    ("group_configs",),
    ("controller",),
)


def _tell_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("this node no longer follows the cluster", exc_info=error)


def _merge(present: TopicState, read: TopicState) -> list[TopicPartition]:
    """Newer states, other replicas and more partitions of a topic that stays itself."""
    changed = []
    for number, state in enumerate(read.partitions):
        if number >= len(present.partitions):
            present.partitions.append(state)
        elif state.version < present.partitions[number].version:
            continue
        elif state != present.partitions[number]:
            present.partitions[number] = state
        else:
            continue
        changed.append(TopicPartition(present.name, number))
    return changed


def _update(present: dict[_Item, _Result], read: dict[_Item, _Result]) -> bool:
    is_new = any(present.get(key) != value for key, value in read.items())
    present.update(read)
    return is_new


async def _in_parts(
    items: Sequence[_Item], work: Callable[[_Item], Awaitable[_Result]]
) -> list[tuple[_Item, _Result]]:
    done: list[tuple[_Item, _Result]] = []
    for start in range(0, len(items), _READS_AT_ONCE):
        part = items[start : start + _READS_AT_ONCE]
        done += zip(part, await asyncio.gather(*map(work, part)), strict=True)
    return done
