"""How long a follower that says nothing holds back what its leader has.

Whole nodes in one event loop, with a coordination store in memory.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from millstream.cluster import membership
from millstream.cluster.stores.store import CoordinationFailed, Put
from millstream.errors import KafkaCode
from tests.replication.nodes import cluster_of, produce

SETTINGS = {"min.insync.replicas": "1", "replica.lag.time.max.ms": "300"}


def test_a_silent_follower_is_waited_for_until_it_is_out_of_sync_though_that_fails_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node has been replaced; the other one is alive and does not fetch. The leader has no
    connection to ZooKeeper when it says so for the first time."""
    monkeypatch.setattr(membership, "_RETRY_SECONDS_MAX", 0.01)

    async def scenario() -> None:
        async with cluster_of(tmp_path, settings=SETTINGS) as cluster:
            await cluster.create("t")
            replaced = await cluster.led()
            await cluster.kill(replaced.node_id)
            cluster.lose_session(replaced.node_id)
            leader = await cluster.led(besides=replaced.node_id)
            (other,) = cluster.nodes.keys() - {leader.node_id}
            # Answered only when the other one follows: it must not begin after the stop.
            assert await produce(leader, 10) == (KafkaCode.NONE, 0)
            await cluster.in_sync(leader.node_id, other)
            await cluster.nodes[other].member._fetchers.stop()
            store: Any = cluster._sessions[leader.node_id]
            commit = store.commit
            refused: list[list[str]] = []

            async def no_connection_at_first(operations: Any) -> Any:
                changed = [each.path for each in operations if isinstance(each, Put)]
                if len(refused) < 2 and any(path.endswith("/state") for path in changed):
                    refused.append(changed)
                    raise CoordinationFailed("no connection to ZooKeeper")
                return await commit(operations)

            monkeypatch.setattr(store, "commit", no_connection_at_first)
            assert await produce(leader, 10) == (KafkaCode.NONE, 10)
            assert len(refused) == 2
            await cluster.in_sync(leader.node_id)

    asyncio.run(scenario())
