"""Cuts of the network around a leader: from ZooKeeper only, and from its followers only.

Cut from ZooKeeper, a leader must stop to answer acks=1 before a successor can exist, two
thirds of a session after the cut; acks=all may go on as long as the others follow it, and
nothing that it acknowledges may be missing at the successor. Cut from its followers, it
can commit nothing alone.
"""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from millstream.errors import KafkaCode
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from tests.faults.cluster_faults import AFTER_FAULT, BEFORE_FAULT
from tests.faults.cluster_load import (
    PARTITIONS,
    TOPIC,
    Reader,
    Writer,
    end_offsets,
    read_final,
    wait_until_acknowledged,
)
from tests.faults.history import History, anomalies
from tests.faults.kills import Round
from tests.faults.network import Network
from tests.storage.logs import batch
from tests.support.cluster import MillstreamCluster, millstream_cluster
from tests.support.raw_client import RawClient

SESSION_MS = 6_000
_LEASE_SECONDS = SESSION_MS / 1000 * 2 / 3
# Until the last packet of before has arrived.
_GRACE_SECONDS = 0.5
_ALONE_TOPIC = "lonely"


class OneAck:
    """acks=1, straight to one node all the time: when was the last asked that it took? An
    answer may come late on a busy machine; it cannot be given before it is asked for."""

    def __init__(self, address: str, partition: int) -> None:
        self.taken: list[float] = []
        self._address = address
        self._partition = partition
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="one-ack", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with RawClient(self._address) as client:
            while not self._stop.is_set():
                data = ProducePartitionData(index=self._partition, records=bytes(batch(1)))
                asked_at = time.monotonic()
                answer = client.ask(
                    ProduceRequest(
                        transactional_id=None,
                        acks=1,
                        timeout_ms=1_000,
                        topic_data=[ProduceTopicData(name=_ALONE_TOPIC, partition_data=[data])],
                    ),
                    9,
                )
                result = answer.responses[0].partition_responses[0]
                if result.error_code == KafkaCode.NONE:
                    self.taken.append(asked_at)
                time.sleep(0.02)

    def last_before(self, end: float) -> float:
        return max((at for at in self.taken if at < end), default=0.0)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def cluster_cut_rounds(folder: Path, seeds: list[int]) -> Iterator[Round]:
    """Even seeds cut the leader from ZooKeeper, odd ones from its followers."""
    with ExitStack() as stack:
        network = stack.enter_context(Network(3))
        cluster = stack.enter_context(
            millstream_cluster(
                folder,
                *("--set", f"zookeeper.session.timeout.ms={SESSION_MS}"),
                *("--set", "replica.lag.time.max.ms=2000"),
                network=network,
            )
        )
        cluster.create_topic(TOPIC, PARTITIONS)
        cluster.create_topic(_ALONE_TOPIC, PARTITIONS)
        for seed in seeds:
            yield _round(cluster, network, seed)


def zookeeper_outage_rounds(folder: Path, seeds: list[int]) -> Iterator[Round]:
    """ZooKeeper says nothing for more than a session: acks=all goes on, acks=1 does not."""
    with millstream_cluster(
        folder, "--set", f"zookeeper.session.timeout.ms={SESSION_MS}"
    ) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        cluster.create_topic(_ALONE_TOPIC, PARTITIONS)
        for seed in seeds:
            yield _outage(cluster, seed)


def _outage(cluster: MillstreamCluster, seed: int) -> Round:
    chance = random.Random(seed)
    client = cluster.client
    history = History(first_offsets=end_offsets(client))
    writers = [Writer(client, history, seed)]
    reader = Reader(client, history)
    leader = cluster.leaders(_ALONE_TOPIC)[0]
    one_ack = OneAck(cluster.nodes[leader].bootstrap, 0)
    wait_until_acknowledged(writers, BEFORE_FAULT)
    cluster.freeze_zookeeper()
    frozen_at = time.monotonic()
    try:
        time.sleep(SESSION_MS / 1000 + chance.random() * 3)
        # Committed without it, by every partition.
        wait_until_acknowledged(writers, AFTER_FAULT)
        thawed_at = time.monotonic()
    finally:
        cluster.thaw_zookeeper()
    last_seconds = one_ack.last_before(thawed_at) - frozen_at
    wait_until_acknowledged(writers, AFTER_FAULT)
    for writer in writers:
        writer.stop()
    one_ack.stop()
    cluster.wait_until_in_sync(TOPIC)
    # The next round begins with the leaders of this one.
    cluster.wait_until_in_sync(_ALONE_TOPIC)
    read_final(client, history)
    reader.stop()
    problems = [str(anomaly) for anomaly in anomalies(history)]
    problems += [error for writer in writers for error in writer.errors] + reader.errors
    if last_seconds > _LEASE_SECONDS + _GRACE_SECONDS:
        problems.append(f"acks=1 was taken {last_seconds:.1f} s after ZooKeeper fell silent")
    return Round(
        seed=seed,
        acknowledged=sum(writer.acknowledged for writer in writers),
        fault=f"ZooKeeper was silent for {thawed_at - frozen_at:.1f} s; last acks=1 record"
        f" {last_seconds:.1f} s after it fell silent",
        problems=problems[:50],
    )


def _round(cluster: MillstreamCluster, network: Network, seed: int) -> Round:
    chance = random.Random(seed)
    client = cluster.client
    history = History(first_offsets=end_offsets(client))
    writers = [Writer(client, history, seed), Writer(client, history, seed + 1)]
    reader = Reader(client, history)
    partition = chance.randrange(PARTITIONS)
    leader = cluster.leaders(_ALONE_TOPIC)[partition]
    one_ack = OneAck(cluster.nodes[leader].bootstrap, partition)
    wait_until_acknowledged(writers, BEFORE_FAULT)
    is_from_zookeeper = seed % 2 == 0
    if is_from_zookeeper:
        network.cut(leader, network.zookeeper)
    else:
        for other in cluster.nodes:
            if other != leader:
                network.cut(leader, network.address(other))
    cut_at = time.monotonic()
    time.sleep(SESSION_MS / 1000 + chance.random() * 3)
    healed_at = time.monotonic()
    network.heal(leader)
    wait_until_acknowledged(writers, AFTER_FAULT)
    for writer in writers:
        writer.stop()
    one_ack.stop()
    cluster.wait_until_in_sync(TOPIC)
    cluster.wait_until_in_sync(_ALONE_TOPIC)
    read_final(client, history)
    reader.stop()
    problems = [str(anomaly) for anomaly in anomalies(history)]
    problems += [error for writer in writers for error in writer.errors]
    problems += reader.errors
    # Healed, it may lead again.
    last_seconds = one_ack.last_before(healed_at) - cut_at
    if is_from_zookeeper and last_seconds > _LEASE_SECONDS + _GRACE_SECONDS:
        problems.append(f"acks=1 was taken {last_seconds:.1f} s after the cut")
    whom = "ZooKeeper" if is_from_zookeeper else "its followers"
    gap_ms = max((gap for writer in writers for gap in writer.gaps.values()), default=0.0) * 1000
    return Round(
        seed=seed,
        acknowledged=sum(writer.acknowledged for writer in writers),
        fault=f"node {leader} was cut from {whom}; last acks=1 record {last_seconds:.1f} s after"
        f" it, longest time without an acknowledgement {gap_ms:.0f} ms",
        problems=problems[:50],
    )
