"""Reads what was marked from the coordination store, and sets a watch wherever it reads.

Knows where everything is stored; the observer decides what enters the image. A poll reads
without watches: they would accumulate where nothing ever changes.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from millstream.cluster import znodes
from millstream.cluster.client_entities import ClientEntity
from millstream.cluster.state import (
    BrokerState,
    ClusterImage,
    Incarnation,
    NamedResource,
    PartitionState,
    TopicState,
)
from millstream.cluster.stores.store import CoordinationStore, Node, NoNode, OnChange
from millstream.model import TopicPartition
from millstream.security.acl import Entry, ResourcePattern
from millstream.security.delegation import DelegationToken

log = logging.getLogger(__name__)

# Reads in flight at once; more would only wait in the driver.
_READS_AT_ONCE: Final = 500
_AGAIN_SECONDS: Final = 0.2

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# What to read again: a kind and, for most kinds, which one; "poll" at the end of a poll.
Mark = tuple[Hashable, ...]

# The kind of mark that there may be thousands of: a partition's state.
STATE: Final = "state"

# The kind of mark for users, client ids or addresses: all that are below one path.
ENTITIES: Final = "entities"

ACLS: Final = "acls"

# The kind of mark for options of groups, or of subscriptions to client metrics.
NAMED_CONFIGS: Final = "named_configs"

# What everything else depends on.
ROOTS: Final[tuple[Mark, ...]] = (
    ("topics",),
    ("brokers",),
    ("epochs",),
    ("handled",),
    ("broker_configs",),
    *((NAMED_CONFIGS, kind) for kind in NamedResource),
    *((ENTITIES, root) for root in znodes.ENTITY_CONFIGS),
    (ACLS,),
    ("tokens",),
    ("controller",),
)


@dataclass(frozen=True, slots=True)
class ControllerNode:
    broker_id: int
    epoch: int
    epoch_version: int


@dataclass(frozen=True, slots=True)
class EntitiesBelow:
    """Users, client ids or addresses. `version` is that of the path, which every change writes."""

    version: int
    options: dict[ClientEntity, dict[str, str]]


@dataclass(frozen=True, slots=True)
class FoundAcls:
    """`version` is that of the znode that every change writes."""

    version: int
    # Are these all? Otherwise only those that have changed since the version before.
    is_complete: bool
    entries: dict[ResourcePattern, frozenset[Entry]]


@dataclass(frozen=True, slots=True)
class FoundTokens:
    """All delegation tokens. `version` is that of the path, which every change writes."""

    version: int
    tokens: dict[str, DelegationToken]


@dataclass(slots=True)
class Found:
    """What was read, not yet in the image."""

    topics: dict[str, TopicState | None] = field(default_factory=dict)
    # The znodes of those topics that exist.
    entries: dict[str, znodes.TopicEntry] = field(default_factory=dict)
    states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    registrations: dict[int, BrokerState | None] = field(default_factory=dict)
    incarnations: dict[int, Incarnation] = field(default_factory=dict)
    handled: dict[int, int] = field(default_factory=dict)
    broker_configs: dict[int | None, dict[str, str]] = field(default_factory=dict)
    named_configs: dict[NamedResource, dict[str, dict[str, str]]] = field(default_factory=dict)
    entities: dict[str, EntitiesBelow] = field(default_factory=dict)
    acls: FoundAcls | None = None
    tokens: FoundTokens | None = None
    controller: ControllerNode | None = None


class Reader:
    """`mark` is called with what a watch says has changed."""

    def __init__(
        self, store: CoordinationStore, image: ClusterImage, mark: Callable[[Mark], None]
    ) -> None:
        self._store = store
        self._image = image
        self._mark = mark
        # Nodes that are registered, alive or not: the observer keeps it.
        self.registered: dict[int, BrokerState] = {}
        # The topics' own znodes, as in the image: the observer keeps it. A write of one is based on
        # the image, so its version must never be newer than that.
        self.entries: dict[str, znodes.TopicEntry] = {}
        # What entered the image, by path: the observer keeps it.
        self.entities: dict[str, EntitiesBelow] = {}
        # The version of the ACLs in the image; None before the first are: the observer keeps it.
        self.acls_version: int | None = None
        self.tokens_version: int | None = None

    def _hint(self, *mark: Hashable) -> OnChange:
        return lambda: self._mark(mark)

    def _mark_later(self, mark: Mark) -> None:
        """A change is in progress: reading at once would find it unfinished again."""
        asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._mark, mark)

    async def read(self, marks: Collection[Mark]) -> Found:
        """Everything that is marked. Raises CoordinationFailed."""
        found = Found()
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
                case "named_configs":
                    await self._read_named_configs(found, NamedResource(mark[1]), is_poll)
                case "entities":
                    await self._read_entities(found, str(mark[1]), is_poll)
                case "acls":
                    await self._read_acls(found, is_poll)
                case "tokens":
                    await self._read_tokens(found, is_poll)
                case "controller":
                    await self._read_controller(found, is_poll)
        topics = [str(mark[1]) for mark in marks if mark[0] == "topic"]
        await self._read_topics(found, topics)
        for name in [str(mark[1]) for mark in marks if mark[0] == "config"]:
            found.configs[name] = await self._config(name)
        states = [mark for mark in marks if mark[0] == STATE and mark[1] not in found.topics]
        for mark, state in await _in_parts(states, self._state):
            if state is not None:
                found.states[TopicPartition(str(mark[1]), int(str(mark[2])))] = state
        return found

    async def _read_topic_names(self, found: Found, is_poll: bool) -> None:
        hint = None if is_poll else self._hint("topics")
        names = await self._store.children(znodes.TOPICS, hint)
        await self._read_topics(found, [name for name in names if name not in self._image.topics])
        for name in self._image.topics.keys() - set(names):
            found.topics[name] = None

    async def _read_topics(self, found: Found, names: Sequence[str]) -> None:
        async def read(name: str) -> TopicState | None:
            return await self._topic(found, name)

        found.topics.update(await _in_parts(names, read))

    async def _topic(self, found: Found, name: str) -> TopicState | None:
        """The whole topic; None if it does not exist or is incomplete."""
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
        except NoNode as problem:
            return await self._without_state(name, node, problem.path)
        if None in partitions:
            self._mark_later(("topic", name))
            return None
        found.entries[name] = entry
        whole = [state for state in partitions if state is not None]
        return TopicState(name, entry.topic_id, whole, await self._config(name))

    async def _without_state(self, name: str, read: Node, missing: str) -> TopicState | None:
        """Deleted while it was read; or a part of it was removed, which must not look like a
        deletion: nodes would delete their data."""
        try:
            if (await self._store.get(znodes.topic_path(name))) != read:
                return None
        except NoNode:
            return None
        log.error("topic %s is damaged in the coordination store: %s is missing", name, missing)
        return self._image.topics.get(name)

    async def _state(self, mark: Mark) -> PartitionState | None:
        name, number = str(mark[1]), int(str(mark[2]))
        entry = self.entries.get(name)
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
        node = await self._store.get(path, self._hint(STATE, name, number))
        return znodes.decode_partition(node, entry, number)

    async def _config(self, name: str) -> dict[str, str]:
        try:
            hint = self._hint("config", name)
            return znodes.decode_config(await self._store.get(znodes.topic_config_path(name), hint))
        except NoNode:
            return {}

    async def _read_registrations(self, found: Found, is_poll: bool) -> None:
        nodes = await self._all_below(znodes.BROKERS, "brokers", is_poll)
        for broker_id, node in nodes.items():
            found.registrations[broker_id] = znodes.decode_broker(broker_id, node)
        for broker_id in self.registered.keys() - nodes.keys():
            found.registrations[broker_id] = None

    async def _read_incarnations(self, found: Found, is_poll: bool) -> None:
        nodes = await self._all_below(znodes.EPOCHS, "epochs", is_poll)
        for broker_id, node in nodes.items():
            found.incarnations[broker_id] = znodes.decode_incarnation(node)

    async def _read_handled(self, found: Found, is_poll: bool) -> None:
        nodes = await self._all_below(znodes.HANDLED, "handled", is_poll)
        for broker_id, node in nodes.items():
            found.handled[broker_id] = int(node.data)

    async def _all_below(self, path: str, mark: str, is_poll: bool) -> dict[int, Node]:
        """The numbered znodes below a path: one per broker, so there are few."""
        hint = None if is_poll else self._hint(mark)

        async def read(name: str) -> Node | None:
            try:
                return await self._store.get(f"{path}/{name}", hint)
            except NoNode:
                return None

        nodes = await _in_parts(await self._store.children(path, hint), read)
        return {int(name): node for name, node in nodes if node is not None}

    async def _read_broker_configs(self, found: Found, is_poll: bool) -> None:
        hint = None if is_poll else self._hint("broker_configs")
        for name in await self._store.children(znodes.BROKER_CONFIGS, hint):
            broker_id = None if name == znodes.DEFAULT_BROKER else int(name)
            try:
                node = await self._store.get(f"{znodes.BROKER_CONFIGS}/{name}", hint)
            except NoNode:
                continue
            found.broker_configs[broker_id] = znodes.decode_config(node)

    async def _read_named_configs(self, found: Found, kind: NamedResource, is_poll: bool) -> None:
        hint = None if is_poll else self._hint(NAMED_CONFIGS, kind)
        root = znodes.NAMED_CONFIGS[kind]
        configs = found.named_configs[kind] = {}
        for znode in await self._store.children(root, hint):
            path = f"{root}/{znode}"
            with contextlib.suppress(NoNode):
                config = znodes.decode_config(await self._store.get(path, hint))
                configs[znodes.name_of_config_path(kind, path)] = config

    async def _read_entities(self, found: Found, root: str, is_poll: bool) -> None:
        hint = None if is_poll else self._hint(ENTITIES, root)
        version = (await self._store.get(root, hint)).version
        known = self.entities.get(root)
        if is_poll and known is not None and known.version == version:
            return
        # What changes while the tree is read changes the version too, and is read again.
        options = znodes.decode_entities(await self._store.tree(root))
        found.entities[root] = EntitiesBelow(version, options)

    async def _read_acls(self, found: Found, is_poll: bool) -> None:
        hint = None if is_poll else self._hint(ACLS)
        node = await self._store.get(znodes.ACL_CHANGES, hint)
        known = self.acls_version
        if node.version == known:
            return
        # What changes in the meantime changes the version too, and is read again.
        if known is not None and node.version == known + 1:
            changed = await _in_parts(znodes.decode_acl_changes(node), self._acls_at)
            entries = {
                pattern: some
                for path, some in changed
                if (pattern := znodes.pattern_of_acl_path(path)) is not None
            }
            found.acls = FoundAcls(node.version, False, entries)
            return
        entries = znodes.decode_all_acls(await self._store.tree(znodes.LITERAL_ACLS))
        entries |= znodes.decode_all_acls(await self._store.tree(znodes.PREFIXED_ACLS))
        found.acls = FoundAcls(node.version, True, entries)

    async def _acls_at(self, path: str) -> frozenset[Entry]:
        try:
            return znodes.decode_acls(await self._store.get(path))
        except NoNode:
            return frozenset()

    async def _read_tokens(self, found: Found, is_poll: bool) -> None:
        hint = None if is_poll else self._hint("tokens")
        version = (await self._store.get(znodes.TOKENS, hint)).version
        if not is_poll or version != self.tokens_version:
            tokens = znodes.decode_tokens(await self._store.tree(znodes.TOKENS))
            found.tokens = FoundTokens(version, tokens)

    async def _read_controller(self, found: Found, is_poll: bool) -> None:
        """The controller, and the version of the epoch that was in force before and after."""
        hint = None if is_poll else self._hint("controller")
        epoch = await self._store.get(znodes.CONTROLLER_EPOCH)
        while True:
            broker_id = -1
            with contextlib.suppress(NoNode):
                if await self._store.exists(znodes.CONTROLLER, hint):
                    broker_id = znodes.decode_controller(await self._store.get(znodes.CONTROLLER))
            before, epoch = epoch, await self._store.get(znodes.CONTROLLER_EPOCH)
            if before.version == epoch.version:
                break
        found.controller = ControllerNode(broker_id, int(epoch.data), epoch.version)


async def _in_parts(
    items: Sequence[_Item], work: Callable[[_Item], Awaitable[_Result]]
) -> list[tuple[_Item, _Result]]:
    done: list[tuple[_Item, _Result]] = []
    for start in range(0, len(items), _READS_AT_ONCE):
        part = items[start : start + _READS_AT_ONCE]
        done += zip(part, await asyncio.gather(*map(work, part)), strict=True)
    return done
