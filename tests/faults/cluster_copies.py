"""A copy in transactions on three nodes, with kill -9 of the nodes and of the copier all along.

The coordinator of the transactions, that of the group and the leaders of both topics are on
different nodes, and every kill moves some of them.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults.copier import TARGET
from tests.faults.copy_job import Copier, problems, read, write_input
from tests.faults.kills import Round
from tests.support.cluster import MillstreamCluster, millstream_cluster

RECORDS = 100_000
_PASS_SECONDS_MAX = 300


def cluster_copy_passes(folder: Path, seeds: list[int], records: int = RECORDS) -> Iterator[Round]:
    for seed in seeds:
        with millstream_cluster(folder / f"copy-{seed}") as cluster:
            yield _copy_pass(cluster, seed, records)


def _copy_pass(cluster: MillstreamCluster, seed: int, records: int) -> Round:
    chance = random.Random(seed)
    kills = {"node": 0, "copier": 0}
    write_input(cluster.bootstrap, records, replicas=len(cluster.nodes))
    with Copier(cluster.bootstrap, records) as copier:
        copier.start()
        deadline = time.monotonic() + _PASS_SECONDS_MAX
        while (code := copier.wait_a_while(chance)) != 0:
            if time.monotonic() > deadline:
                return Round(seed, 0, _told(kills), ["the copy does not get on"])
            if code is None and chance.random() < 0.6:
                node = cluster.nodes[chance.choice(sorted(cluster.nodes))]
                node.kill()
                time.sleep(chance.random())
                node.start()
                # Two of three at once would be more than is promised.
                cluster.wait_until_in_sync(TARGET)
                kills["node"] += 1
                continue
            if code is None:
                copier.kill()
                kills["copier"] += 1
            copier.start()
        committed = read(cluster.bootstrap, "read_committed")
        everything = read(cluster.bootstrap, "read_uncommitted")
    return Round(seed, len(committed), _told(kills), problems(committed, everything, records))


def _told(kills: dict[str, int]) -> str:
    return f"SIGKILL of nodes {kills['node']} times, of the copier {kills['copier']} times"
