"""Faults of a cluster of three under load: kills, power cuts, restarts one after the other.

A round writes and reads all along, lets one fault happen, waits until everybody is in sync
again and reads everything once more; then the checker has the word.
"""

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.faults.cluster_load import (
    PARTITIONS,
    TOPIC,
    JavaWriter,
    Reader,
    Writer,
    end_offsets,
    read_final,
    wait_until_acknowledged,
)
from tests.faults.disk import CuttableDisk
from tests.faults.history import History, anomalies
from tests.faults.kills import Round
from tests.support.cluster import MillstreamCluster, millstream_cluster, wait_until
from tests.support.former_version import install_former_version
from tests.support.java_client import JavaClient
from tests.support.node import MillstreamNode
from tests.support.secured_cluster import SecuredCluster, secured_cluster

_AT_NEW_LEVEL = "every node knows level"
BEFORE_FAULT = 1_500
AFTER_FAULT = 800
# Every so-many-th kill hits the node of the controller.
CONTROLLER_EVERY = 3
RENEWAL_SECONDS_MAX = 0.5

# Does its harm; what it was.
Fault = Callable[[MillstreamCluster, random.Random, int], str]


def cluster_kill_rounds(folder: Path, seeds: list[int]) -> Iterator[Round]:
    """Written to by confluent-kafka and by the Java client."""
    with millstream_cluster(folder) as cluster, JavaClient(cluster.bootstrap) as java:
        cluster.create_topic(TOPIC, PARTITIONS)
        for seed in seeds:
            yield _round(cluster, seed, _kill, java)


def secure_cluster_kill_rounds(folder: Path, seeds: list[int]) -> Iterator[Round]:
    """The same with TLS and SCRAM between everybody and SASL to ZooKeeper, while certificates
    are renewed."""
    with (
        secured_cluster(folder) as cluster,
        JavaClient(cluster.bootstrap, cluster.client_config) as java,
    ):
        cluster.create_topic(TOPIC, PARTITIONS)

        def kill(_: MillstreamCluster, chance: random.Random, seed: int) -> str:
            with renewed_certificates(cluster, seed) as renewals:
                text = _kill(cluster, chance, seed)
            for node_id in cluster.nodes:
                wait_until(
                    partial(cluster.shows_its_certificate, node_id),
                    f"node {node_id} shows its newest certificate",
                )
            return f"{text}; {len(renewals)} certificates renewed meanwhile, and shown"

        for seed in seeds:
            yield _round(cluster, seed, kill, java)


@contextlib.contextmanager
def renewed_certificates(cluster: SecuredCluster, seed: int) -> Iterator[list[int]]:
    """While the block runs, one node after the other gets a new certificate; every node at least
    once. Yields the nodes."""
    chance = random.Random(seed)
    nodes = sorted(cluster.nodes)
    chance.shuffle(nodes)
    renewals: list[int] = []
    is_over = threading.Event()

    def renew() -> None:
        for node_id in itertools.cycle(nodes):
            if is_over.is_set() and len(renewals) >= len(nodes):
                return
            cluster.renew_certificate(node_id)
            renewals.append(node_id)
            is_over.wait(chance.random() * RENEWAL_SECONDS_MAX)

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield renewals
    finally:
        is_over.set()
        thread.join()


def rolling_restart_rounds(folder: Path, seeds: list[int]) -> Iterator[Round]:
    """No error may reach the application."""
    with millstream_cluster(folder) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        for seed in seeds:
            yield _round(cluster, seed, _restart_all)


def rolling_upgrade_rounds(folder: Path, seeds: list[int]) -> Iterator[Round]:
    """From the former version to this one, each time with a new cluster. In every other round two
    nodes go back before all of them go on. No error may reach the application."""
    former = install_former_version(folder)
    for seed in seeds:
        with millstream_cluster(folder / f"round-{seed}", packages=former) as cluster:
            cluster.create_topic(TOPIC, PARTITIONS)
            yield _round(cluster, seed, partial(_upgrade_all, former))


def _upgrade_all(former: Path, cluster: MillstreamCluster, chance: random.Random, seed: int) -> str:
    first, second, last = chance.sample(list(cluster.nodes.values()), 3)
    steps: list[tuple[MillstreamNode, Path | None]] = [(first, None), (second, None)]
    if goes_back := seed % 2 == 1:
        steps += [(first, former), (second, former), (second, None), (first, None)]
    for node, packages in steps:
        _restart_in_version(cluster, node, packages, chance)
        for each in cluster.nodes.values():
            assert _AT_NEW_LEVEL not in each.log_text, "a level that one node does not know"
    _restart_in_version(cluster, last, None, chance)
    wait_until(
        lambda: any(_AT_NEW_LEVEL in each.log_text for each in cluster.nodes.values()),
        "the cluster is at the new level",
    )
    back = ", two of them back and forth" if goes_back else ""
    return f"all nodes upgraded, one after the other{back}"


def _restart_in_version(
    cluster: MillstreamCluster, node: MillstreamNode, packages: Path | None, chance: random.Random
) -> None:
    code = node.stop()
    assert code == 0, f"a node stopped with {code}"
    time.sleep(chance.random() * 0.5)
    node.packages = packages
    node.start()
    cluster.wait_until_in_sync(TOPIC)


def cluster_power_cut_rounds(folder: Path, seeds: list[int]) -> Iterator[Round]:
    with ExitStack() as stack:
        disks = {}
        for node_id in (1, 2, 3):
            place = folder / f"disk-{node_id}"
            place.mkdir(parents=True)
            disks[node_id] = stack.enter_context(CuttableDisk(place))
        cluster = stack.enter_context(
            millstream_cluster(folder, data_dir=lambda n: disks[n].mount_point / "data")
        )
        cluster.create_topic(TOPIC, PARTITIONS)

        def cut(cluster: MillstreamCluster, chance: random.Random, seed: int) -> str:
            victim = chance.choice(sorted(cluster.nodes))
            node, disk = cluster.nodes[victim], disks[victim]
            node.freeze()
            disk.cut_power()
            node.kill()
            disk.unmount()
            time.sleep(chance.random())
            disk.mount()
            node.start()
            return f"power cut of node {victim}"

        for seed in seeds:
            yield _round(cluster, seed, cut)


def _kill(cluster: MillstreamCluster, chance: random.Random, seed: int) -> str:
    controller = cluster.controller_id(TOPIC)
    victim = chance.choice(sorted(cluster.nodes))
    if seed % CONTROLLER_EVERY == 0 and controller in cluster.nodes:
        victim = controller
    led = [p for p, leader in cluster.leaders(TOPIC).items() if leader == victim]
    node = cluster.nodes[victim]
    node.kill()
    time.sleep(chance.random() * 1.5)
    node.start()
    role = " the controller" if victim == controller else ""
    return f"SIGKILL of node {victim}{role}, leader of {led}"


def _restart_all(cluster: MillstreamCluster, chance: random.Random, seed: int) -> str:
    for node in cluster.nodes.values():
        _restart_in_version(cluster, node, node.packages, chance)
    return "all nodes restarted, one after the other"


def _round(
    cluster: MillstreamCluster, seed: int, fault: Fault, java: JavaClient | None = None
) -> Round:
    chance = random.Random(seed)
    client = cluster.client
    history = History(first_offsets=end_offsets(client))
    writers = [Writer(client, history, seed), Writer(client, history, seed + 1)]
    others = [] if java is None else [JavaWriter(java, history, seed + 2)]
    reader = Reader(client, history)
    wait_until_acknowledged(writers, BEFORE_FAULT)
    time.sleep(chance.random() * 0.3)
    for writer in writers:
        writer.forget_gaps()
    text = fault(cluster, chance, seed)
    wait_until_acknowledged(writers, AFTER_FAULT)
    for each in (*writers, *others):
        each.stop()
    cluster.wait_until_in_sync(TOPIC)
    read_final(client, history)
    reader.stop()
    gap_ms = max((gap for writer in writers for gap in writer.gaps.values()), default=0.0) * 1000
    problems = [str(anomaly) for anomaly in anomalies(history)]
    problems += [error for each in (*writers, *others) for error in each.errors]
    problems += reader.errors
    return Round(
        seed=seed,
        acknowledged=sum(each.acknowledged for each in (*writers, *others)),
        fault=f"{text}; longest time without an acknowledgement {gap_ms:.0f} ms",
        problems=problems[:50],
    )
