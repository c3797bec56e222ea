"""From a standalone node to a cluster: moves the contents of its store to ZooKeeper.

Everything is written before the cluster's id, which is what a node looks for. Until then
there is no cluster, and an interrupted move starts again from nothing. The node's own
store is read and never changed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from millstream.cluster import znodes
from millstream.cluster.client_entities import ClientEntity
from millstream.cluster.metadata import load_image
from millstream.cluster.state import ClusterImage, TopicState
from millstream.cluster.stores.store import (
    TOP_PATHS,
    CoordinationStore,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    parent_of,
)
from millstream.errors import StartError

_OPERATIONS_MAX: Final = 400
_TOKEN: Final = "moved"
_MIN_ISR: Final = "min.insync.replicas"
# Top-level znodes of a cluster; anything else belongs to another application.
_TOP: Final = frozenset(path.strip("/") for path in TOP_PATHS)


@dataclass(frozen=True, slots=True)
class Move:
    """The contents of a standalone node's store."""

    image: ClusterImage
    controller_epoch: bytes
    producer_block: bytes | None

    def lines(self) -> Iterator[str]:
        """A summary for a person."""
        partitions = sum(len(topic.partitions) for topic in self.image.topics.values())
        yield f"cluster {self.image.cluster_id}"
        topics = _counted(len(self.image.topics), "topic")
        yield f"{topics} with {_counted(partitions, 'partition')}"
        for topic in sorted(self.image.topics.values(), key=lambda topic: topic.name):
            options = ", ".join(f"{name}={value}" for name, value in topic.overrides.items())
            count = _counted(len(topic.partitions), "partition")
            yield f"topic {topic.name}: {count} {options}".rstrip()


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


async def read_move(store: CoordinationStore) -> Move:
    """Raises StartError if the store has no cluster."""
    try:
        image = await load_image(store)
        epoch = (await store.get(znodes.CONTROLLER_EPOCH)).data
    except NoNode as problem:
        raise StartError(f"the node has never been started: {problem} is missing") from problem
    try:
        block = (await store.get(znodes.PRODUCER_IDS)).data
    except NoNode:
        block = None
    return Move(image, epoch, block)


async def target_problem(store: CoordinationStore, cluster_id: str) -> str | None:
    """Why nothing can be moved to `store`. None also if the same cluster was already moved."""
    if await store.exists(znodes.CLUSTER_ID):
        found = znodes.decode_cluster_id(await store.get(znodes.CLUSTER_ID))
        return None if found == cluster_id else f"there is another cluster, {found}"
    present = set(await store.children("/"))
    if not present <= _TOP:
        return f"there is something else: {', '.join(sorted(present - _TOP))}"
    return None


async def move(what: Move, store: CoordinationStore, *, min_isr: int) -> None:
    """Write everything. No effect if it was already done.

    `min_isr` is the cluster's default, unless one was set at run time.
    """
    if await store.exists(znodes.CLUSTER_ID):
        return
    await _remove_rest(store)
    for path in znodes.BASE_PATHS:
        if not await store.exists(path):
            try:
                await store.commit([Create(path)])
            except NodeExists:
                continue
    for operations in _in_parts(_everything(what, min_isr)):
        await store.commit(operations)
    cluster_id = znodes.encode_cluster_id(what.image.cluster_id)
    await store.commit([Create(znodes.CLUSTER_ID, cluster_id)])


def _everything(what: Move, min_isr: int) -> Iterator[Operation]:
    yield Create(znodes.CONTROLLER_EPOCH, what.controller_epoch)
    if what.producer_block is not None:
        yield Create(znodes.PRODUCER_IDS, what.producer_block)
    # One value for the whole cluster, as in a new one: ELRs depend on it.
    for_all = {_MIN_ISR: str(min_isr), **what.image.broker_overrides.get(None, {})}
    for topic in what.image.topics.values():
        yield from znodes.create_topic(
            _moved(topic, int(for_all[_MIN_ISR])), controller_epoch=int(what.controller_epoch)
        )
    for broker_id, overrides in {**what.image.broker_overrides, None: for_all}.items():
        yield Create(znodes.broker_config_path(broker_id), znodes.encode_config(overrides))
    for kind, named in what.image.named_overrides.items():
        for name, overrides in named.items():
            yield Create(znodes.named_config_path(kind, name), znodes.encode_config(overrides))
    yield from _entities(what.image.client_entities.options)
    for token_id, token in what.image.delegation_tokens.tokens.items():
        yield Create(znodes.token_path(token_id), znodes.encode_token(token))
    for pattern, entries in what.image.acls.entries.items():
        yield Create(znodes.acl_path(pattern), znodes.encode_acls(entries))


def _entities(entities: Mapping[ClientEntity, Mapping[str, str]]) -> Iterator[Operation]:
    wanted = {
        znodes.entity_config_path(entity): znodes.encode_config(options)
        for entity, options in entities.items()
    }
    for path in tuple(wanted):
        while (path := parent_of(path)) not in znodes.ENTITY_CONFIGS:
            wanted.setdefault(path, b"")
    for path in sorted(wanted):
        yield Create(path, wanted[path])


def _moved(topic: TopicState, min_isr: int) -> TopicState:
    wanted = int(topic.overrides.get(_MIN_ISR, min_isr))
    partitions = [
        replace(state, min_isr=min(wanted, len(state.replicas)), writer_token=_TOKEN)
        for state in topic.partitions
    ]
    return replace(topic, partitions=partitions)


async def _remove_rest(store: CoordinationStore) -> None:
    """What an interrupted move has left."""
    paths = sorted(await store.tree("/"), reverse=True)
    for start in range(0, len(paths), _OPERATIONS_MAX):
        part = paths[start : start + _OPERATIONS_MAX]
        await store.commit([Delete(path) for path in part])


def _in_parts(operations: Iterable[Operation]) -> Iterator[Sequence[Operation]]:
    part: list[Operation] = []
    for operation in operations:
        part.append(operation)
        if len(part) == _OPERATIONS_MAX:
            yield part
            part = []
    if part:
        yield part
