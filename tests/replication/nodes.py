"""Several whole nodes in one event loop: real logs, real sockets, the cluster in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from millstream.client.aio import Connection
from millstream.cluster.stores.memory import MemoryStore, MemoryTree
from millstream.config import load_config
from millstream.errors import KafkaCode
from millstream.replication.replicated import ReplicatedPartition
from millstream.wire.apis.create_topics import CreatableConfig, CreatableTopic, CreateTopicsRequest
from millstream.wire.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millstream.wire.apis.produce import ProducePartitionData, ProduceRequest, ProduceTopicData
from millstream.wire.message import Message, Request
from tests.storage.logs import batch
from tests.support.open_node import OpenNode

_SECONDS_MAX = 60.0
_SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "replica.fetch.backoff.ms": "50",
}
M = TypeVar("M", bound=Message)


class Cluster:
    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.tree = MemoryTree()
        self.nodes: dict[int, OpenNode] = {}
        self._folder = folder
        self._settings = {**_SETTINGS, **settings}
        self._sessions: dict[int, MemoryStore] = {}

    async def start(self, node_id: int, **settings: str) -> OpenNode:
        async def open_session() -> MemoryStore:
            self._sessions[node_id] = self.tree.open_session()
            return self._sessions[node_id]

        flags = {
            **self._settings,
            "node.id": str(node_id),
            "log.dirs": str(self._folder / f"node-{node_id}"),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        node = OpenNode(load_config(flags=flags), dev=True, open_session=open_session)
        await node.start()
        self.nodes[node_id] = node
        return node

    async def kill(self, node_id: int) -> None:
        """As a dead process: nothing is said to anybody, and the session runs out."""
        await self.nodes.pop(node_id).abandon()

    def lose_session(self, node_id: int) -> None:
        self._sessions[node_id].expire()

    async def stop(self) -> None:
        for node_id in list(self.nodes):
            await self.nodes.pop(node_id).stop()

    # -- looking ----------------------------------------------------------------------

    def replica(self, node_id: int, topic: str = "t", index: int = 0) -> ReplicatedPartition:
        found = self.nodes[node_id].partitions.get(topic, index)
        assert isinstance(found, ReplicatedPartition)
        return found

    def leader(self, topic: str = "t", index: int = 0) -> OpenNode | None:
        """The node that leads, once it knows."""
        for node in self.nodes.values():
            found = node.partitions.find(topic, index)
            if isinstance(found, ReplicatedPartition) and found.is_leader:
                return node
        return None

    async def led(self, topic: str = "t", index: int = 0, *, besides: int = -1) -> OpenNode:
        def is_led() -> bool:
            leader = self.leader(topic, index)
            return leader is not None and leader.node_id != besides

        await until(is_led, f"{topic}-{index} has a leader")
        leader = self.leader(topic, index)
        assert leader is not None
        return leader

    async def in_sync(self, *node_ids: int, topic: str = "t", index: int = 0) -> None:
        def is_so() -> bool:
            leader = self.leader(topic, index)
            if leader is None:
                return False
            leadership = self.replica(leader.node_id, topic, index).leadership
            return leadership is not None and set(leadership.isr) == set(node_ids)

        await until(is_so, f"{node_ids} are in sync")

    # -- asking -----------------------------------------------------------------------

    async def create(
        self, topic: str = "t", partitions: int = 1, replicas: int = 3, **configs: str
    ) -> None:
        node = next(iter(self.nodes.values()))
        answer = await ask(
            node,
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name=topic,
                        num_partitions=partitions,
                        replication_factor=replicas,
                        assignments=[],
                        configs=[
                            CreatableConfig(name=name.replace("_", "."), value=value)
                            for name, value in configs.items()
                        ],
                    )
                ],
                timeout_ms=10_000,
                validate_only=False,
            ),
            7,
        )
        assert answer.topics[0].error_code == KafkaCode.NONE, answer.topics[0].error_message
        for index in range(partitions):
            await self.led(topic, index)
            is_known = partial(self._is_known, topic, index)
            await until(is_known, f"every node knows {topic}-{index}")

    def _is_known(self, topic: str, index: int) -> bool:
        """The nodes hear of a topic one after the other: all know who leads, and have their
        replicas open."""
        for node in self.nodes.values():
            state = node.image.partition(topic, index)
            if state is None or state.leader not in self.nodes:
                return False
            found = node.partitions.find(topic, index)
            has_role = isinstance(found, ReplicatedPartition) and found.leader_id == state.leader
            if node.node_id in state.replicas and not has_role:
                return False
        return True


async def until(is_so: Callable[[], bool], what: str) -> None:
    """Other nodes act in their own time, and offer nothing to wait for."""
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"waited in vain until {what}") from None


@contextlib.asynccontextmanager
async def cluster_of(
    folder: Path, nodes: int = 3, settings: Mapping[str, str] | None = None
) -> AsyncIterator[Cluster]:
    cluster = Cluster(folder, settings or {})
    try:
        for node_id in range(1, nodes + 1):
            await cluster.start(node_id, broker_rack=f"rack-{node_id}")
        # Who started first hears of the last a moment later.
        everybody = set(cluster.nodes)
        await until(
            lambda: all(set(node.image.brokers) == everybody for node in cluster.nodes.values()),
            "all nodes know each other",
        )
        yield cluster
    finally:
        await cluster.stop()


async def ask(node: OpenNode, request: Request[M], version: int) -> M:
    connection = await Connection.open("127.0.0.1", node.port, client_id="test", timeout_seconds=5)
    try:
        return await connection.ask(request, version, timeout_seconds=_SECONDS_MAX)
    finally:
        connection.close()


async def produce(
    node: OpenNode,
    count: int = 1,
    *,
    topic: str = "t",
    index: int = 0,
    acks: int = -1,
    value: bytes = b"value",
) -> tuple[KafkaCode, int]:
    """The code of the answer, and the offset of the first record."""
    answer = await ask(
        node,
        ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=10_000,
            topic_data=[
                ProduceTopicData(
                    name=topic,
                    partition_data=[
                        ProducePartitionData(index=index, records=bytes(batch(count, value=value)))
                    ],
                )
            ],
        ),
        9,
    )
    result = answer.responses[0].partition_responses[0]
    return KafkaCode(result.error_code), result.base_offset


async def fetch(
    node: OpenNode,
    offset: int = 0,
    *,
    topic: str = "t",
    index: int = 0,
    rack_id: str = "",
    replica_id: int = -1,
) -> Any:
    """What one partition answers."""
    answer = await ask(
        node,
        FetchRequest(
            cluster_id=None,
            replica_id=replica_id,
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=index,
                            current_leader_epoch=-1,
                            fetch_offset=offset,
                            last_fetched_epoch=-1,
                            log_start_offset=-1,
                            partition_max_bytes=1 << 20,
                        )
                    ],
                )
            ],
            forgotten_topics_data=[],
            rack_id=rack_id,
        ),
        12,
    )
    return answer.responses[0].partitions[0]


async def end_offset(node: OpenNode, *, topic: str = "t", index: int = 0) -> tuple[KafkaCode, int]:
    answer = await ask(
        node,
        ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=index, current_leader_epoch=-1, timestamp=-1
                        )
                    ],
                )
            ],
        ),
        7,
    )
    result = answer.topics[0].partitions[0]
    return KafkaCode(result.error_code), result.offset
