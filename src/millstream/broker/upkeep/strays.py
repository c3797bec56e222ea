"""Directories that no topic claims: set aside at the start, deleted much later.

A topic can be deleted while a node is down, and the node is not notified. That the cluster
does not know a topic is not enough reason to delete data: its metadata may be lost, or be
another cluster's. So a directory is deleted only if all of this holds:

- the node is a registered member of the cluster that the data directory belongs to (a node
  with another cluster's directory does not start);
- the cluster has topics: metadata that lost everything looks like an empty cluster;
- the directory names its topic's id, and the cluster has no topic with that id;
- it was set aside `millstream.stray.retention.ms` ago: time for a person to notice.

A standalone node deletes nothing: only its database records which topics exist, and that
may be what was lost.
"""

import asyncio
import logging

from millstream.broker.node.state import NodeState
from millstream.cluster.state import ClusterImage
from millstream.model import NO_TOPIC_ID
from millstream.storage.strays import Stray

log = logging.getLogger(__name__)


def set_strays_aside(node: NodeState) -> None:
    """Before the topics are opened. A directory that no topic claims is renamed and not served:
    its topic was deleted while the node was down, or a deletion was cut short, or the database
    was lost. One of a partition that was reassigned to other nodes meanwhile is deleted."""
    store, image = node.disk.store, node.image
    for where, partition_log in list(store.logs.items()):
        topic = image.topics.get(where.topic)
        if topic is None or partition_log.topic_id not in (topic.topic_id, NO_TOPIC_ID):
            store.put_aside(where)
            continue
        state = image.partition(where.topic, where.partition)
        if state is not None and not node.cluster.hosts(state):
            store.delete(where)


async def delete_strays(node: NodeState) -> None:
    retention_ms = node.config.int("millstream.stray.retention.ms")
    if not node.cluster.may_delete_strays or retention_ms < 0:
        return
    now_ms = node.clock.now_ms()
    # Off the loop: the directory may have tens of thousands of names.
    found = await asyncio.get_running_loop().run_in_executor(None, node.disk.store.strays.find)
    for stray in found:
        if is_due(stray, node.image, retention_ms=retention_ms, now_ms=now_ms):
            log.info("deleting %s: its topic, id %s, is gone", stray.path, stray.topic_id)
            node.disk.store.strays.delete(stray)


def is_due(stray: Stray, image: ClusterImage, *, retention_ms: int, now_ms: int) -> bool:
    is_known = stray.topic_id == NO_TOPIC_ID or stray.topic_id in image.topics_by_id
    return bool(image.topics) and not is_known and now_ms - stray.since_ms >= retention_ms
