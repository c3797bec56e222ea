"""Topics whose creation or deletion was interrupted: they are in no image, and are removed.

Who writes a topic in several parts checks the version of the topic's own znode with each of them.
Who removes one changes that version first: from then on nobody else adds or removes anything.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from millstream.cluster import znodes
from millstream.cluster.state import ClusterImage
from millstream.cluster.stores.store import (
    Check,
    CoordinationStore,
    Delete,
    NoNode,
    NotApplied,
    Operation,
    Put,
)

log = logging.getLogger(__name__)

# Paths are short: far below ZooKeeper's megabyte.
_DELETES_PER_WRITE: Final = 200
# More would only wait in the driver.
_READS_AT_ONCE: Final = 500

Commit = Callable[[Sequence[Operation]], Awaitable[object]]


async def remove_half_made(store: CoordinationStore, image: ClusterImage, commit: Commit) -> None:
    """Remove all of them. `commit` writes as the controller. Raises what it raises, except
    NotApplied."""
    for name in await store.children(znodes.TOPICS):
        if name in image.topics:
            continue
        try:
            await remove_if_half_made(store, name, commit)
        except NotApplied:
            # Its creator has just completed it, or another node removes it.
            continue


async def remove_if_half_made(store: CoordinationStore, name: str, commit: Commit) -> None:
    """Remove the topic of this name, unless it is complete or there is none. Raises what `commit`
    raises; NotApplied means that another node completes or removes it."""
    path = znodes.topic_path(name)
    try:
        node = await store.get(path)
    except NoNode:
        return
    if node.data:
        return
    await commit([Put(path, b"", node.version)])
    is_mine = Check(path, node.version + 1)
    paths = await topic_paths(store, name)
    for start in range(0, len(paths), _DELETES_PER_WRITE):
        await commit([is_mine, *map(Delete, paths[start : start + _DELETES_PER_WRITE])])
    log.info("removed the incomplete topic %s", name)


async def topic_paths(store: CoordinationStore, name: str) -> list[str]:
    """All that the store has of a topic, in the order in which it can be deleted. The topic's own
    znode is the last: without it, nobody would find the rest."""
    path, config = znodes.topic_path(name), znodes.topic_config_path(name)
    below: list[str] = []
    level = [path]
    # The folder of partitions, the partitions, their states. Only names: a tree with its contents
    # takes seconds where there are thousands of partitions.
    for _ in range(3):
        level = await _children(store, level)
        below = level + below
    return [*below, *([config] if await store.exists(config) else []), path]


async def _children(store: CoordinationStore, paths: Sequence[str]) -> list[str]:
    async def of(path: str) -> list[str]:
        try:
            return [f"{path}/{name}" for name in await store.children(path)]
        except NoNode:
            return []

    found: list[str] = []
    for start in range(0, len(paths), _READS_AT_ONCE):
        for some in await asyncio.gather(*map(of, paths[start : start + _READS_AT_ONCE])):
            found += some
    return found
