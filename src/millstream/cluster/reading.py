"""Reads what was marked from the coordination store, and sets a watch wherever it reads.

Knows where everything is stored; the observer decides what enters the image. A poll reads
without watches: they would accumulate where nothing ever changes.

A znode that cannot be decoded is put aside: what it says stays in the image as it was, and all
others are followed. Only a node that has no image yet does not start: it would take the data of a
topic that it cannot read for that of a deleted one.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
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
from millstream.errors import StartError
from millstream.model import TopicPartition
from millstream.security.acl import Entry, ResourcePattern
from millstream.security.delegation import DelegationToken

log = logging.getLogger(__name__)

# Reads in flight at once; more would only wait in the driver.
_READS_AT_ONCE: Final = 500
_AGAIN_SECONDS: Final = 0.2

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Present = TypeVar("_Present")

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


class _Unreadable(Exception):
    """A znode whose content is not what it should be; the cause is the exception's."""

    def __init__(self, path: str, version: int) -> None:
        super().__init__(path)
        self.path = path
        self.version = version


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
        # Is there no image yet that could keep what cannot be read?
        self._is_first = image.controller_epoch < 0
        # The versions of what could not be read, by path: a poll finds it again and again.
        self._put_aside: dict[str, int] = {}

    def _hint(self, *mark: Hashable) -> OnChange:
        return lambda: self._mark(mark)

    def _mark_later(self, mark: Mark) -> None:
        """A change is in progress: reading at once would find it unfinished again."""
        asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._mark, mark)

    def _decoded(
        self, path: str, node: Node, decode: Callable[[Node], _Result], present: _Present
    ) -> _Result | _Present:
        """What is in a znode; what is `present` if that cannot be decoded."""
        try:
            return _decode(path, node, decode)
        except _Unreadable as problem:
            self._note(problem)
            return present

    def _note(self, problem: _Unreadable) -> None:
        """Raises StartError where nothing is known that could stay."""
        cause = repr(problem.__cause__)
        if self._is_first:
            raise StartError(f"{problem.path} in ZooKeeper cannot be read: {cause}") from problem
        if self._put_aside.get(problem.path) != problem.version:
            self._put_aside[problem.path] = problem.version
            log.error("%s cannot be read, and is taken to be as it was: %s", problem.path, cause)

    async def read(self, marks: Collection[Mark]) -> Found:
        """Everything that is marked. Raises CoordinationFailed; StartError without an image."""
        found = await self._read(marks)
        self._is_first = False
        return found

    async def _read(self, marks: Collection[Mark]) -> Found:
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
            try:
                found.configs[name] = await self._config(name)
            except _Unreadable as problem:
                self._note(problem)
        # With their states; others are in the image as they were, and their states may be newer.
        whole = {n for n, topic in found.topics.items() if topic is None or n in found.entries}
        states = [mark for mark in marks if mark[0] == STATE and mark[1] not in whole]
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
        try:
            return await self._whole_topic(found, name)
        except _Unreadable as problem:
            self._note(problem)
            return self._image.topics.get(name)

    async def _whole_topic(self, found: Found, name: str) -> TopicState | None:
        path = znodes.topic_path(name)
        try:
            node = await self._store.get(path, self._hint("topic", name))
        except NoNode:
            return None
        entry = _decode(path, node, znodes.decode_topic)
        if entry is None:
            return None
        try:
            partitions = [
                state
                for _, state in await _in_parts(
                    range(len(entry.replicas)),
                    lambda number: self._state_or_present(name, entry, number),
                )
            ]
        except NoNode as problem:
            return await self._without_state(name, node, problem.path)
        if None in partitions:
            self._mark_later(("topic", name))
            return None
        whole = [state for state in partitions if state is not None]
        try:
            config = await self._config(name)
        except _Unreadable as problem:
            present = self._image.topics.get(name)
            if present is None or present.topic_id != entry.topic_id:
                raise
            self._note(problem)
            config = present.overrides
        found.entries[name] = entry
        return TopicState(name, entry.topic_id, whole, config)

    async def _state_or_present(
        self, name: str, entry: znodes.TopicEntry, number: int
    ) -> PartitionState | None:
        """One state that cannot be read does not keep the others of its topic as they were."""
        try:
            return await self._state_of(name, entry, number)
        except _Unreadable as problem:
            topic = self._image.topics.get(name)
            present = self._image.partition(name, number)
            if topic is None or topic.topic_id != entry.topic_id or present is None:
                raise
            self._note(problem)
            return present

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
        except _Unreadable as problem:
            self._note(problem)
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
        return _decode(path, node, lambda read: znodes.decode_partition(read, entry, number))

    async def _config(self, name: str) -> dict[str, str]:
        path = znodes.topic_config_path(name)
        try:
            node = await self._store.get(path, self._hint("config", name))
        except NoNode:
            return {}
        return _decode(path, node, znodes.decode_config)

    async def _read_registrations(self, found: Found, is_poll: bool) -> None:
        nodes = await self._all_below(znodes.BROKERS, "brokers", is_poll)
        for broker_id, node in nodes.items():
            decode = partial(znodes.decode_broker, broker_id)
            present = self._image.brokers.get(broker_id)
            broker = self._decoded(znodes.broker_path(broker_id), node, decode, present)
            if broker is not None:
                found.registrations[broker_id] = broker
        for broker_id in self.registered.keys() - nodes.keys():
            found.registrations[broker_id] = None

    async def _read_incarnations(self, found: Found, is_poll: bool) -> None:
        nodes = await self._all_below(znodes.EPOCHS, "epochs", is_poll)
        for broker_id, node in nodes.items():
            path = znodes.epoch_path(broker_id)
            incarnation = self._decoded(path, node, znodes.decode_incarnation, None)
            if incarnation is not None:
                found.incarnations[broker_id] = incarnation

    async def _read_handled(self, found: Found, is_poll: bool) -> None:
        nodes = await self._all_below(znodes.HANDLED, "handled", is_poll)
        for broker_id, node in nodes.items():
            handled = self._decoded(znodes.handled_path(broker_id), node, _number, None)
            if handled is not None:
                found.handled[broker_id] = handled

    async def _all_below(self, path: str, mark: str, is_poll: bool) -> dict[int, Node]:
        """The numbered znodes below a path: one per broker, so there are few. Others are none of
        this cluster's."""
        hint = None if is_poll else self._hint(mark)

        async def read(name: str) -> Node | None:
            try:
                return await self._store.get(f"{path}/{name}", hint)
            except NoNode:
                return None

        names = await self._store.children(path, hint)
        nodes = await _in_parts([name for name in names if name.isdecimal()], read)
        return {int(name): node for name, node in nodes if node is not None}

    async def _read_broker_configs(self, found: Found, is_poll: bool) -> None:
        hint = None if is_poll else self._hint("broker_configs")
        for name in await self._store.children(znodes.BROKER_CONFIGS, hint):
            if name != znodes.DEFAULT_BROKER and not name.isdecimal():
                continue
            broker_id = None if name == znodes.DEFAULT_BROKER else int(name)
            path = f"{znodes.BROKER_CONFIGS}/{name}"
            try:
                node = await self._store.get(path, hint)
            except NoNode:
                continue
            config = self._decoded(path, node, znodes.decode_config, None)
            if config is not None:
                found.broker_configs[broker_id] = config

    async def _read_named_configs(self, found: Found, kind: NamedResource, is_poll: bool) -> None:
        hint = None if is_poll else self._hint(NAMED_CONFIGS, kind)
        root = znodes.NAMED_CONFIGS[kind]
        configs = found.named_configs[kind] = {}
        for znode in await self._store.children(root, hint):
            path = f"{root}/{znode}"
            name = znodes.name_of_config_path(kind, path)
            present = self._image.named_overrides[kind].get(name)
            with contextlib.suppress(NoNode):
                node = await self._store.get(path, hint)
                config = self._decoded(path, node, znodes.decode_config, present)
                if config is not None:
                    configs[name] = config

    async def _read_entities(self, found: Found, root: str, is_poll: bool) -> None:
        hint = None if is_poll else self._hint(ENTITIES, root)
        version = (await self._store.get(root, hint)).version
        known = self.entities.get(root)
        if is_poll and known is not None and known.version == version:
            return
        # What changes while the tree is read changes the version too, and is read again.
        options: dict[ClientEntity, dict[str, str]] = {}
        for path, node in (await self._store.tree(root)).items():
            entity = znodes.entity_of_config_path(path)
            if entity is not None and node.data:
                present = dict(self._image.client_entities.options_of(entity))
                options[entity] = self._decoded(path, node, znodes.decode_config, present)
        found.entities[root] = EntitiesBelow(version, options)

    async def _read_acls(self, found: Found, is_poll: bool) -> None:
        hint = None if is_poll else self._hint(ACLS)
        node = await self._store.get(znodes.ACL_CHANGES, hint)
        known = self.acls_version
        if node.version == known:
            return
        # What changes in the meantime changes the version too, and is read again.
        if known is not None and node.version == known + 1:
            paths = self._decoded(znodes.ACL_CHANGES, node, znodes.decode_acl_changes, None)
            if paths is not None:
                changed = dict(await _in_parts(paths, self._acls_at))
                found.acls = FoundAcls(node.version, False, self._acls(changed))
                return
        literal = await self._store.tree(znodes.LITERAL_ACLS)
        prefixed = await self._store.tree(znodes.PREFIXED_ACLS)
        entries = self._acls({**literal, **prefixed})
        found.acls = FoundAcls(node.version, True, entries)

    async def _acls_at(self, path: str) -> Node | None:
        try:
            return await self._store.get(path)
        except NoNode:
            return None

    def _acls(self, nodes: Mapping[str, Node | None]) -> dict[ResourcePattern, frozenset[Entry]]:
        found = {}
        for path, node in nodes.items():
            pattern = znodes.pattern_of_acl_path(path)
            if pattern is None:
                continue
            if node is None:
                found[pattern] = frozenset[Entry]()
            else:
                present = self._image.acls.entries_of(pattern)
                found[pattern] = self._decoded(path, node, znodes.decode_acls, present)
        return found

    async def _read_tokens(self, found: Found, is_poll: bool) -> None:
        hint = None if is_poll else self._hint("tokens")
        version = (await self._store.get(znodes.TOKENS, hint)).version
        if not is_poll or version != self.tokens_version:
            tokens = {}
            for path, node in (await self._store.tree(znodes.TOKENS)).items():
                present = self._image.delegation_tokens.tokens.get(path.rpartition("/")[2])
                token = self._decoded(path, node, znodes.decode_token, present)
                if token is not None:
                    tokens[token.token_id] = token
            found.tokens = FoundTokens(version, tokens)

    async def _read_controller(self, found: Found, is_poll: bool) -> None:
        """The controller, and the version of the epoch that was in force before and after."""
        hint = None if is_poll else self._hint("controller")
        epoch = await self._store.get(znodes.CONTROLLER_EPOCH)
        while True:
            broker_id = -1
            with contextlib.suppress(NoNode):
                if await self._store.exists(znodes.CONTROLLER, hint):
                    node = await self._store.get(znodes.CONTROLLER)
                    present = self._image.controller_id
                    broker_id = self._decoded(
                        znodes.CONTROLLER, node, znodes.decode_controller, present
                    )
            before, epoch = epoch, await self._store.get(znodes.CONTROLLER_EPOCH)
            if before.version == epoch.version:
                break
        number = self._decoded(znodes.CONTROLLER_EPOCH, epoch, _number, None)
        if number is not None:
            found.controller = ControllerNode(broker_id, number, epoch.version)


def _decode(path: str, node: Node, decode: Callable[[Node], _Result]) -> _Result:
    """Raises _Unreadable, whatever is wrong with the content."""
    try:
        return decode(node)
    except Exception as problem:
        raise _Unreadable(path, node.version) from problem


def _number(node: Node) -> int:
    return int(node.data)


async def _in_parts(
    items: Sequence[_Item], work: Callable[[_Item], Awaitable[_Result]]
) -> list[tuple[_Item, _Result]]:
    done: list[tuple[_Item, _Result]] = []
    for start in range(0, len(items), _READS_AT_ONCE):
        part = items[start : start + _READS_AT_ONCE]
        done += zip(part, await asyncio.gather(*map(work, part)), strict=True)
    return done
