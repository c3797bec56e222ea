"""How long partitions are without acknowledgements when a node of a large cluster fails.

    python -m bench.failover [--partitions 3000] [--fault kill] [--rounds 3]

Three nodes, replication factor 3, acks=all, min.insync.replicas=2. A client writes one small record
every 100 ms to a fifth of all partitions, over one connection per topic and leader, and asks for
the leaders again when it gets an error, or no answer for a second. The gap of a partition is the
longest time between two acknowledgements around the fault, so it includes up to 100 ms of the
client's own pace.

`kill` ends the controller with kill -9, which leads a third of the partitions; `second` another
node while the first is away (with min.insync.replicas=1); `freeze` stops the controller with
SIGSTOP; `zookeeper` stops the only ZooKeeper server with SIGSTOP for five seconds;
`zookeeper-leader` kills the leader of an ensemble of three.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from millstream.client.aio import Connection, NoAnswer
from millstream.errors import KafkaCode
from millstream.records.builder import build_key_values
from millstream.wire.apis.metadata import MetadataRequest, MetadataRequestTopic
from millstream.wire.apis.produce import (
    ProducePartitionData,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicData,
)
from tests.support.cluster import MillstreamCluster, millstream_cluster
from tests.support.waiting import wait_until
from tests.support.zookeeper import ZooKeeperEnsemble, zookeeper_ensemble

PER_TOPIC: Final = 100
# Every so-many-th partition is written to.
SAMPLE: Final = 5
PACE_SECONDS: Final = 0.1
_ANSWER_SECONDS: Final = 10.0
# A frozen node does not answer and closes nothing. A client that waits for it looks from time to
# time whether another node leads.
_PATIENCE_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.25
_METADATA_VERSION: Final = 9
_PRODUCE_VERSION: Final = 9
_RETRY_SECONDS: Final = 0.1
_AFTER_SECONDS: Final = 3.0
_FAULT_SECONDS_MAX: Final = 25.0
_ZOOKEEPER_SECONDS: Final = 5.0

Address = tuple[str, int]
# In seconds: of the partitions whose leader was hit, and of the others.
Gaps = tuple[list[float], list[float]]


class Node(Protocol):
    @property
    def bootstrap(self) -> str: ...


class AnyCluster(Protocol):
    """Millstream's or Kafka's."""

    @property
    def nodes(self) -> Mapping[int, Node]: ...
    def leaders(self, topic: str) -> dict[int, int]: ...


class TopicWriter:
    """Writes to some partitions of one topic, each when the last record is acknowledged."""

    def __init__(self, topic: str, partitions: list[int], addresses: list[Address]) -> None:
        self.topic = topic
        self.partitions = partitions
        self.leaders: dict[int, int] = {}
        self.last: dict[int, float] = {}
        self.gaps: dict[int, float] = {}
        self._addresses = addresses
        self._nodes: dict[int, Address] = {}
        self._connections: dict[object, Connection] = {}
        self._looking = asyncio.Lock()

    async def run(self) -> None:
        await self._find_leaders()
        waiting = set(self.partitions)
        while True:
            began = time.monotonic()
            by_leader: dict[int, list[int]] = {}
            for partition in sorted(waiting):
                by_leader.setdefault(self.leaders.get(partition, -1), []).append(partition)
            by_leader.pop(-1, None)
            answers = [self._write(leader, some) for leader, some in by_leader.items()]
            done = set().union(*await asyncio.gather(*answers)) if answers else set()
            waiting -= done
            if waiting:
                await asyncio.sleep(_RETRY_SECONDS)
                await self._find_leaders()
                continue
            waiting = set(self.partitions)
            await asyncio.sleep(max(0.0, PACE_SECONDS - (time.monotonic() - began)))

    async def _write(self, leader: int, partitions: list[int]) -> set[int]:
        record = build_key_values([(b"k", b"v")], timestamp_ms=int(time.time() * 1000))
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                ProduceTopicData(
                    name=self.topic,
                    partition_data=[
                        ProducePartitionData(index=n, records=bytes(record)) for n in partitions
                    ],
                )
            ],
        )
        try:
            connection = await self._connection(("node", leader), self._nodes[leader])
            asking = asyncio.create_task(
                connection.ask(request, _PRODUCE_VERSION, timeout_seconds=_ANSWER_SECONDS)
            )
            await self._wait_while_leading(asking, leader, partitions)
            answer = await asking
        except (NoAnswer, KeyError):
            self._drop(("node", leader))
            return set()
        now = time.monotonic()
        done = set()
        for one in answer.responses[0].partition_responses:
            if one.error_code == KafkaCode.NONE:
                done.add(one.index)
                gap = now - self.last.get(one.index, now)
                self.gaps[one.index] = max(self.gaps.get(one.index, 0.0), gap)
                self.last[one.index] = now
        return done

    async def _wait_while_leading(
        self, asking: asyncio.Task[ProduceResponse], leader: int, partitions: list[int]
    ) -> None:
        """Until there is an answer. Raises NoAnswer once the node leads none of the partitions."""
        patience = _PATIENCE_SECONDS
        try:
            while not (await asyncio.wait({asking}, timeout=patience))[0]:
                patience = _LOOK_SECONDS
                await self._find_leaders()
                if all(self.leaders.get(each, leader) != leader for each in partitions):
                    raise NoAnswer(f"node {leader} does not lead any more")
        finally:
            if not asking.done():
                asking.cancel()

    async def _find_leaders(self) -> None:
        async with self._looking:
            await self._ask_for_leaders()

    async def _ask_for_leaders(self) -> None:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False
        )
        for address in list(self._addresses):
            try:
                connection = await self._connection(address, address)
                answer = await connection.ask(request, _METADATA_VERSION, timeout_seconds=1.0)
            except NoAnswer:
                self._drop(address)
                self._addresses.append(self._addresses.pop(0))
                continue
            self._nodes = {one.node_id: (one.host, one.port) for one in answer.brokers}
            self.leaders = {
                one.partition_index: one.leader_id for one in answer.topics[0].partitions
            }
            return

    async def _connection(self, key: object, address: Address) -> Connection:
        if key not in self._connections:
            self._connections[key] = await Connection.open(
                *address, client_id="failover", timeout_seconds=1.0
            )
        return self._connections[key]

    def _drop(self, key: object) -> None:
        connection = self._connections.pop(key, None)
        if connection is not None:
            connection.close()


async def measure(
    cluster: AnyCluster, topics: Sequence[str], victim: int | None, do_harm: Callable[[], None]
) -> Gaps:
    """The gaps around a harm, which hits a node, or with None all partitions."""
    addresses = [
        (node.bootstrap.partition(":")[0], int(node.bootstrap.rpartition(":")[2]))
        for node in cluster.nodes.values()
    ]
    # Those that one node leads at first have a writer of their own: they wait for no others.
    writers = [
        TopicWriter(topic, some, list(addresses))
        for topic in topics
        for some in _by_leader(cluster.leaders(topic))
    ]
    tasks = [asyncio.create_task(writer.run()) for writer in writers]
    try:
        await until(lambda: all(len(w.last) == len(w.partitions) for w in writers), tasks)
        await asyncio.sleep(2.0)
        led = [
            (writer, n)
            for writer in writers
            for n in writer.partitions
            if victim is None or writer.leaders.get(n) == victim
        ]
        for writer in writers:
            writer.gaps.clear()
        failed_at = time.monotonic()
        await asyncio.to_thread(do_harm)
        await until(lambda: all(w.last[n] > failed_at + _AFTER_SECONDS for w, n in led), tasks)
        others = [(w, n) for w in writers for n in w.partitions if (w, n) not in led]
        return [w.gaps[n] for w, n in led], [w.gaps[n] for w, n in others]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _by_leader(leaders: dict[int, int]) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for partition in range(0, PER_TOPIC, SAMPLE):
        found.setdefault(leaders[partition], []).append(partition)
    return list(found.values())


async def until(is_so: Callable[[], bool], tasks: list[asyncio.Task[None]]) -> None:
    async with asyncio.timeout(_FAULT_SECONDS_MAX):
        while not is_so():
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.02)


def _do_harm(
    cluster: MillstreamCluster, victim: int, fault: str, ensemble: ZooKeeperEnsemble | None
) -> None:
    if ensemble is not None:
        ensemble.kill_leader()
    elif fault == "freeze":
        cluster.nodes[victim].freeze()
    elif fault == "zookeeper":
        cluster.freeze_zookeeper()
        time.sleep(_ZOOKEEPER_SECONDS)
        cluster.thaw_zookeeper()
    else:
        cluster.nodes[victim].kill()


def _wait_until_led_by_others(cluster: MillstreamCluster, topics: Sequence[str], dead: int) -> None:
    wait_until(
        lambda: all(dead not in cluster.leaders(topic).values() for topic in topics),
        f"node {dead} leads nothing",
    )


def _mend(cluster: MillstreamCluster, topics: Sequence[str]) -> None:
    for node in cluster.nodes.values():
        if node.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(node.pid, signal.SIGCONT)
        else:
            node.start()
    for topic in topics:
        cluster.wait_until_in_sync(topic)


def topics_for(partitions: int) -> list[str]:
    return [f"t{n}" for n in range(partitions // PER_TOPIC)]


def p99(gaps: Sequence[float]) -> float:
    return sorted(gaps)[int(len(gaps) * 0.99)]


def failures(
    place: Path, *options: str, fault: str, partitions: int, rounds: int
) -> Iterator[Gaps]:
    """Of a cluster of ours that has so many partitions; the same cluster in all rounds."""
    if fault == "second":
        options += ("--set", "min.insync.replicas=1")
    with contextlib.ExitStack() as stack:
        ensemble = None
        if fault == "zookeeper-leader":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            ensemble = stack.enter_context(zookeeper_ensemble(Path(folder)))
        cluster = stack.enter_context(
            millstream_cluster(place, "--dev", *options, ensemble=ensemble)
        )
        stack.callback(cluster.kill_all)
        topics = topics_for(partitions)
        for topic in topics:
            cluster.create_topic(topic, PER_TOPIC)
        for _ in range(rounds):
            yield _failure(cluster, topics, fault, ensemble)
            if ensemble is not None:
                ensemble.start()
            _mend(cluster, topics)


def _failure(
    cluster: MillstreamCluster,
    topics: Sequence[str],
    fault: str,
    ensemble: ZooKeeperEnsemble | None,
) -> Gaps:
    if fault == "second":
        first = next(n for n in cluster.nodes if n != cluster.controller_id(topics[0]))
        cluster.nodes[first].kill()
        _wait_until_led_by_others(cluster, topics, first)
    victim = cluster.controller_id(topics[0])
    harm = partial(_do_harm, cluster, victim, fault, ensemble)
    hit = None if fault.startswith("zookeeper") else victim
    return asyncio.run(measure(cluster, topics, hit, harm))


def text(gaps: list[float]) -> str:
    return (
        f"{len(gaps)} partitions, median {statistics.median(gaps):.2f} s,"
        f" p99 {p99(gaps):.2f} s, longest {max(gaps):.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--fault",
        default="kill",
        choices=["kill", "second", "freeze", "zookeeper", "zookeeper-leader"],
    )
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--keep-logs", type=Path)
    arguments = parser.parse_args()
    options = [word for each in arguments.set for word in ("--set", each)]
    with tempfile.TemporaryDirectory() as folder:
        found = failures(
            arguments.keep_logs or Path(folder),
            *options,
            fault=arguments.fault,
            partitions=arguments.partitions,
            rounds=arguments.rounds,
        )
        for number, (hit, others) in enumerate(found, 1):
            print(f"{arguments.fault} {number}: led by it: {text(hit)}", flush=True)
            if others:
                print(f"    led by others: {text(others)}", flush=True)


if __name__ == "__main__":
    main()
