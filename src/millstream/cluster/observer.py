"""Keeps a node's image of the cluster equal to the coordination store.

A watch is a hint: it marks what to read again. One round reads everything that is marked,
puts it into the image in one step, and notifies the listeners once of the difference. Between
two rounds the image does not change, and only the loop ever touches it.

A partition's state enters the image only if its version is larger than the present one, so
that neither an old response nor a slow ZooKeeper server can revert it.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from millstream.cluster import znodes
from millstream.cluster.reading import ACLS, ENTITIES, ROOTS, STATE, Found, Mark, Reader
from millstream.cluster.state import (
    ClusterImage,
    PartitionState,
    TopicState,
)
from millstream.cluster.stores.store import (
    CoordinationFailed,
    CoordinationStore,
    Node,
    SessionEnded,
)
from millstream.model import TopicPartition

log = logging.getLogger(__name__)

# Slightly more than one write of the controller changes.
STATES_PER_ROUND: Final = 250
_RETRY_SECONDS: Final = 0.2
# After an error that nobody expected: it may come again at once, with its trace in the log.
_ERROR_SECONDS: Final = 1.0
# States that enter together, from so many on, are read and watched again only after this time.
POSTPONED_FROM: Final = 50
POSTPONED_SECONDS: Final = 2.0

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class ImageChange:
    """What one round changed. A recreated topic is in both of the first two."""

    deleted: tuple[TopicState, ...] = ()
    created: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    configs: tuple[str, ...] = ()
    # Brokers that joined, left, or changed their registration.
    brokers: tuple[int, ...] = ()
    has_broker_configs: bool = False
    has_controller: bool = False
    has_incarnations: bool = False

    @property
    def is_empty(self) -> bool:
        return self == ImageChange()


OnChanged = Callable[[ImageChange], None]


class Observer:
    """The view of one session. `listeners` are notified of every change, on the loop."""

    def __init__(self, store: CoordinationStore, image: ClusterImage) -> None:
        self.image = image
        self.listeners: list[OnChanged] = []
        self._store = store
        # In the order of the hints: the controller first writes what has no leader.
        self._marks: dict[Mark, None] = {}
        self._is_marked = asyncio.Event()
        self._reading = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._reader = Reader(store, image, self._hinted)
        # States that entered the image without being read. Their watches fire a moment later; to
        # read all of them then would delay what has to happen now. Until they are read, nothing
        # hints at newer ones.
        self._postponed: set[Mark] = set()

    async def start(self) -> None:
        """The image is complete when this returns."""
        # What an earlier session saw and no longer exists must be removed, too.
        self._mark_all()
        await self.refresh()
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(log_failure)

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
        """Read what is marked. If it raises CoordinationFailed, it stays marked."""
        async with self._reading:
            while self._marks:
                marks = self._next_marks()
                for mark in marks:
                    del self._marks[mark]
                self._is_marked.clear()
                try:
                    found = await self._reader.read(marks)
                except BaseException:
                    self._marks = dict.fromkeys([*marks, *self._marks])
                    self._is_marked.set()
                    raise
                self._enter(found)

    def _next_marks(self) -> list[Mark]:
        """All marks, but only some of the partition states: what is read takes effect when its
        round is over, and the first of thousands need not wait for the last."""
        others = [mark for mark in self._marks if mark[0] != STATE]
        states = (mark for mark in self._marks if mark[0] == STATE)
        return [*others, *itertools.islice(states, STATES_PER_ROUND)]

    async def read_again(self, places: Iterable[TopicPartition]) -> None:
        """Read partitions, and the nodes they depend on, from the store into the image."""
        for where in places:
            self._mark((STATE, where.topic, where.partition))
        await self.read_incarnations()

    async def read_topic(self, name: str) -> None:
        self._mark(("topic", name))
        await self.refresh()

    async def read_entities(self, root: str) -> None:
        """Read the users, client ids or addresses below `root`."""
        self._mark((ENTITIES, root))
        await self.refresh()

    async def read_acls(self) -> None:
        self._mark((ACLS,))
        await self.refresh()

    async def read_tokens(self) -> None:
        """Read the delegation tokens."""
        self._mark(("tokens",))
        await self.refresh()

    async def read_incarnations(self) -> None:
        """Read all starts, and which nodes are alive."""
        for kind in ("epochs", "handled", "brokers"):
            self._mark((kind, "poll"))
        await self.refresh()

    @property
    def registered(self) -> Set[int]:
        """Nodes that have a session, including those whose epoch is over."""
        return self._reader.registered.keys()

    def topic_version(self, name: str) -> int:
        """The version of the topic's own znode that the image has."""
        return self._reader.entries[name].version

    def enter_states(self, states: dict[TopicPartition, PartitionState]) -> None:
        """What this node has just committed need not be read again."""
        self.postpone(states)
        self._enter(Found(states=states))

    def enter_told(self, nodes: Mapping[TopicPartition, Node]) -> None:
        """What the controller has just committed need not be read, either."""
        states = {}
        for where, node in nodes.items():
            entry = self._reader.entries.get(where.topic)
            if entry is not None and where.partition < len(entry.replicas):
                state = znodes.decode_partition(node, entry, where.partition)
                if state is not None:
                    states[where] = state
        self.enter_states(states)

    @property
    def has_postponed(self) -> bool:
        """Are there states that may be newer in the store, without a hint at that?"""
        return bool(self._postponed)

    def poll(self) -> None:
        """Read the few znodes on which everything else depends, in case a hint was lost."""
        for mark in ROOTS:
            self._mark((*mark, "poll"))

    # -- marks ------------------------------------------------------------------------

    def _hinted(self, mark: Mark) -> None:
        """A watch has fired."""
        if mark not in self._postponed:
            self._mark(mark)

    def postpone(self, places: Collection[TopicPartition]) -> None:
        """Many states are about to change, and will enter the image without being read."""
        if len(places) < POSTPONED_FROM:
            return
        marks: list[Mark] = [(STATE, where.topic, where.partition) for where in places]
        self._postponed.update(marks)
        for mark in marks:
            self._marks.pop(mark, None)
        if not self._marks:
            self._is_marked.clear()
        loop = asyncio.get_running_loop()
        loop.call_later(POSTPONED_SECONDS, self._read_postponed, marks)

    def _read_postponed(self, marks: Iterable[Mark]) -> None:
        for mark in marks:
            if mark in self._postponed:
                self._postponed.remove(mark)
                self._mark(mark)

    def _mark(self, mark: Mark) -> None:
        self._marks[mark] = None
        self._is_marked.set()

    def _mark_all(self) -> None:
        for mark in ROOTS:
            self._mark(mark)
        for name in self.image.topics:
            self._mark(("topic", name))

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
            except Exception:
                # Without this task the node hears of no later change, and stays a member.
                log.exception("a change of the cluster could not be followed")
                await asyncio.sleep(_ERROR_SECONDS)

    # -- into the image ---------------------------------------------------------------

    def _enter(self, found: Found) -> None:
        changed_topics = self._enter_topics(found)
        self._reader.entries.update(found.entries)
        # Code that needs them reads them with each request; no notification is necessary.
        self.image.named_overrides.update(found.named_configs)
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
        self._enter_entities(found)
        if found.tokens is not None:
            self._reader.tokens_version = found.tokens.version
            self.image.delegation_tokens.replace(found.tokens.tokens)
        self._enter_acls(found)
        if not change.is_empty:
            for listener in tuple(self.listeners):
                self._tell(listener, change)

    def _tell(self, listener: OnChanged, change: ImageChange) -> None:
        tell(listener, change, is_over=lambda: listener not in self.listeners)

    def _enter_topics(self, found: Found) -> ImageChange:
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
                self._reader.entries.pop(name, None)
            elif present is None:
                self.image.add_topic(topic)
                created.append(name)
            else:
                partitions += _merge(present, topic)
                if present.overrides != topic.overrides:
                    present.overrides = topic.overrides
                    configs.append(name)
        return ImageChange(tuple(deleted), tuple(created), tuple(partitions), tuple(configs))

    def _enter_states(self, found: Found) -> tuple[TopicPartition, ...]:
        changed = []
        for where, state in found.states.items():
            present = self.image.partition(where.topic, where.partition)
            if present is not None and state.version > present.version:
                self.image.topics[where.topic].partitions[where.partition] = state
                changed.append(where)
        return tuple(changed)

    def _enter_configs(self, found: Found) -> tuple[str, ...]:
        changed = []
        for name, overrides in found.configs.items():
            topic = self.image.topics.get(name)
            if topic is not None and topic.overrides != overrides:
                topic.overrides = overrides
                changed.append(name)
        return tuple(changed)

    def _enter_incarnations(self, found: Found) -> bool:
        is_new = _update(self.image.incarnations, found.incarnations)
        return _update(self.image.handled, found.handled) or is_new

    def _enter_brokers(self, found: Found) -> tuple[int, ...]:
        """A node is alive if it is registered by its latest incarnation."""
        for broker_id, registered in found.registrations.items():
            if registered is None:
                self._reader.registered.pop(broker_id, None)
            else:
                self._reader.registered[broker_id] = registered
        incarnations = self.image.incarnations
        alive = {
            broker_id: broker
            for broker_id, broker in self._reader.registered.items()
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

    def _enter_entities(self, found: Found) -> None:
        if not found.entities:
            return
        read = self._reader.entities
        read.update(found.entities)
        self.image.client_entities.replace(
            {
                entity: options
                for below in read.values()
                for entity, options in below.options.items()
            }
        )

    def _enter_acls(self, found: Found) -> None:
        if found.acls is None:
            return
        self._reader.acls_version = found.acls.version
        if found.acls.is_complete:
            self.image.acls.replace_all(found.acls.entries)
        else:
            self.image.acls.apply(found.acls.entries)

    def _enter_controller(self, found: Found) -> bool:
        read = found.controller
        if read is None:
            return False
        is_new = read.broker_id != self.image.controller_id
        self.image.controller_id = read.broker_id
        self.image.controller_epoch = read.epoch
        self.image.controller_epoch_version = read.epoch_version
        return is_new


def tell(listener: OnChanged, change: ImageChange, *, is_over: Callable[[], bool]) -> None:
    """Tell one listener. If it fails, it is told again until it is over: the image has changed,
    and no later change would bring it to what it missed."""
    try:
        listener(change)
    except Exception:
        log.exception("a change of the cluster could not be followed here; it is told again")
        # Without the deletions: by then there may be other topics of the same names.
        again = replace(change, deleted=())

        def tell_again() -> None:
            if not is_over():
                tell(listener, again, is_over=is_over)

        if not again.is_empty:
            asyncio.get_running_loop().call_later(_ERROR_SECONDS, tell_again)


def log_failure(task: "asyncio.Task[None]") -> None:
    """For tasks that end only by a bug in this module."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("this node no longer follows the cluster", exc_info=error)


def _merge(present: TopicState, read: TopicState) -> list[TopicPartition]:
    """Newer states, other replicas and more partitions of a topic that keeps its id."""
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
