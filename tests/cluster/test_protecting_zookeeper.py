"""Nodes of a cluster without a login at ZooKeeper get one, and then protect what is there.

Covers cluster/stores/zookeeper.py.
"""

import asyncio
from pathlib import Path

import pytest

from millstream.cluster import znodes
from millstream.cluster.stores.store import CoordinationFailed, Put
from millstream.cluster.stores.zookeeper import open_zookeeper
from tests.support.command_line import Ran, run_millstream
from tests.support.node import MillstreamNode
from tests.support.waiting import wait_until
from tests.support.zookeeper import ensemble_at, new_root

pytestmark = [pytest.mark.slow, pytest.mark.java]

NODES = (1, 2)
LOGIN = ["--set", "millstream.zookeeper.digest=${env:NODES_LOGIN}"]
PROTECTING = [*LOGIN, "--set", "zookeeper.set.acl=true"]


class Rounds:
    """Two nodes, restarted one after the other with other options."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self._folder = folder
        self._zookeeper = zookeeper
        self.nodes: dict[int, MillstreamNode] = {}

    def start(self, node_id: int, *options: str) -> None:
        own = ["--set", f"node.id={node_id}", "--set", f"zookeeper.connect={self._zookeeper}"]
        former = self.nodes.get(node_id)
        if former is not None:
            assert former.stop() == 0
        self.nodes[node_id] = MillstreamNode(self._folder / f"node-{node_id}", *own, *options)
        self.nodes[node_id].start()
        wait_until(self._are_in_sync, "all replicas are in sync")

    def run(self, *arguments: str, stdin: str = "") -> Ran:
        bootstrap = ",".join(node.bootstrap for node in self.nodes.values())
        ran = run_millstream(*arguments, bootstrap=bootstrap, stdin=stdin)
        assert ran.exit_code == 0, ran.errors
        return ran

    def _are_in_sync(self) -> bool:
        bootstrap = ",".join(node.bootstrap for node in self.nodes.values())
        found = run_millstream("cluster", "health", bootstrap=bootstrap)
        return len(self.nodes) < len(NODES) or found.exit_code == 0

    def stop(self) -> None:
        for node in self.nodes.values():
            node.stop()


async def can_change_and_read_secrets(zookeeper: str, root: str) -> tuple[bool, bool]:
    """Of a client without a login."""
    store = await open_zookeeper(ensemble_at(zookeeper, root))
    try:
        found = await store.get(znodes.CLUSTER_ID)
        may_change = may_read = True
        try:
            await store.commit([Put(znodes.CLUSTER_ID, found.data)])
        except CoordinationFailed:
            may_change = False
        try:
            await store.get(znodes.CLUSTER_SECRET)
        except CoordinationFailed:
            may_read = False
        return may_change, may_read
    finally:
        await store.close()


@pytest.mark.timeout(240)
def test_a_cluster_gets_a_login_in_two_rounds_of_restarts(
    zookeeper_of_spark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NODES_LOGIN", "nodes:secret")
    root = new_root()
    rounds = Rounds(tmp_path, f"{zookeeper_of_spark}{root}")

    def stranger() -> tuple[bool, bool]:
        return asyncio.run(can_change_and_read_secrets(zookeeper_of_spark, root))

    try:
        for node_id in NODES:
            rounds.start(node_id)
        rounds.run("topic", "create", "before", "-p", "4", "-r", "2")
        rounds.run("produce", "before", stdin="1\n")
        for node_id in NODES:
            rounds.start(node_id, *LOGIN)
            assert stranger() == (True, True)
            assert "set zookeeper.set.acl=true" in rounds.nodes[node_id].log_text
        rounds.start(NODES[0], *PROTECTING)
        assert stranger() == (False, False)
        # The other node has the login, and not yet the option.
        rounds.run("topic", "create", "between", "-r", "2")
        rounds.start(NODES[1], *PROTECTING)
        assert "znodes in ZooKeeper that everybody could change" not in rounds.nodes[2].log_text
        rounds.run("produce", "before", stdin="2\n")
        rounds.run("topic", "delete", "between", "-y")
        read = rounds.run("consume", "before", "-e")
        assert sorted(read.output.split()) == ["1", "2"]
    finally:
        rounds.stop()
