"""Topics whose creation or deletion was interrupted: they are in no image, and are removed."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from millstream.cluster import znodes
from millstream.cluster.state import ClusterImage
from millstream.cluster.stores.store import (
    CoordinationStore,
    Delete,
    NoNode,
    NotApplied,
    Operation,
)

log = logging.getLogger(__name__)

# Paths are short: far below ZooKeeper's megabyte.
_DELETES_PER_WRITE: Final = 200

Commit = Callable[[Sequence[Operation]], Awaitable[object]]


async def remove_half_made(store: CoordinationStore, image: ClusterImage, commit: Commit) -> None:
    """`commit` writes as the controller. Raises what it raises, except NotApplied."""
    for name in await store.children(znodes.TOPICS):
        if name in image.topics:
            continue
        path = znodes.topic_path(name)
        try:
            if znodes.decode_topic(await store.get(path)) is not None:
                continue
            paths = [*sorted(await store.tree(path), reverse=True), path]
            config = znodes.topic_config_path(name)
            if await store.exists(config):
                paths.append(config)
            for start in range(0, len(paths), _DELETES_PER_WRITE):
                await commit([Delete(at) for at in paths[start : start + _DELETES_PER_WRITE]])
            log.info("removed the incomplete topic %s", name)
        except (NoNode, NotApplied):
            # Its creator is still writing, or another node removed it.
            continue
