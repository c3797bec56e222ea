"""The interface through which a node sees the other nodes.

`Standalone` implements it for a node without any, `membership.Member` for a node of a
cluster, so that no other code has to know which of the two it runs in.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from millstream.cluster.state import PartitionState, Reassignment, TopicState
from millstream.cluster.stores.store import Node
from millstream.lazy_dataclass import dataclass
from millstream.model import TopicPartition
from millstream.replication.partition import Partition
from millstream.storage.log import Log
from millstream.wire.message import Message, Request

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """The address of a node for clients of one listener."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Elections(Protocol):
    """Elections and reassignments on request. Each raises KafkaError if it is impossible."""

    async def elect_preferred(self, where: TopicPartition) -> None: ...
    async def elect_uncleanly(self, where: TopicPartition) -> None: ...
    async def reassign(
        self, where: TopicPartition, target: Sequence[int], *, may_resize: bool = True
    ) -> None: ...
    async def cancel(self, where: TopicPartition) -> None: ...
    def reassignments(self) -> list[Reassignment]: ...


class Peers(Protocol):
    """Requests to other nodes."""

    async def ask(
        self, broker_id: int, request: Request[M], version: int, *, timeout_seconds: float
    ) -> M:
        """Raises NoAnswer."""
        ...


class Followers(Protocol):
    """Replicas on other nodes that fetch from partitions that this node leads."""

    def is_held_back(self, partition: Partition, replica_id: int) -> bool:
        """Does the replication throttle allow it nothing now?"""
        ...

    def fetched(self, partition: Partition, replica_id: int, size_bytes: int) -> None:
        """This many bytes were sent to it; it may have caught up."""
        ...


class Cluster(Protocol):
    @property
    def elections(self) -> Elections: ...
    @property
    def peers(self) -> Peers: ...
    @property
    def followers(self) -> Followers: ...

    @property
    def controller_id(self) -> int:
        """-1 while there is none."""
        ...

    @property
    def is_fenced(self) -> bool:
        """Has the cluster gone on without this node, so that it does not know who leads now?"""
        ...

    def why_not_ready(self) -> str | None:
        """What keeps this node from being a full member now; None if it is one."""
        ...

    def brokers(self, listener: str) -> list[NodeAddress]:
        """The live nodes that have a listener of this name."""
        ...

    def departed(self, listener: str) -> list[NodeAddress]:
        """Nodes that died a moment ago: clients want leaders to disappear first."""
        ...

    def reachable_leader(self, topic: TopicState, index: int) -> int:
        """The leader to which a client may be sent, or NO_LEADER."""
        ...

    def offline_replicas(self, topic: TopicState, index: int) -> list[int]: ...

    def seen_nodes(self) -> Hashable:
        """As long as this is the same, the two above depend on the partition's state alone."""
        ...

    def other_leader(self, topic: str, index: int) -> int | None:
        """The node that leads a partition if it is not this one; NO_LEADER while none does."""
        ...

    def internal_replicas(self, wanted: int) -> int:
        """How many replicas an internal topic gets."""
        ...

    def is_proof(self, node_id: int, challenge: bytes, proof: bytes) -> bool:
        """Does the answer to a challenge come from this node of the cluster?"""
        ...

    def hosts(self, state: PartitionState) -> bool:
        """Does this node have a replica?"""
        ...

    def open(self, where: TopicPartition, topic: TopicState, found: Log) -> Partition: ...

    def opened(self, places: Iterable[TopicPartition]) -> None:
        """The partitions are in the table: they may take their roles."""
        ...

    def closing(self, partition: Partition) -> None:
        """The partition leaves this node: end its background work."""
        ...

    def topic_deleted(self, topic: TopicState) -> None:
        """The store no longer has the topic."""
        ...

    def states_told(self, states: Mapping[TopicPartition, Node]) -> None:
        """The controller has written these states of partitions."""
        ...

    @property
    def may_delete_strays(self) -> bool:
        """Is this node sure which topics exist?"""
        ...

    # In the order of a node's life.

    async def register(self) -> None:
        """The logs and the port are open: other nodes may rely on this one."""
        ...

    def disk_failed(self) -> None: ...

    async def hand_over(self) -> None:
        """Hand the leaderships of this node to other nodes, before it stops."""
        ...

    async def stop(self) -> None:
        """End the background work."""
        ...

    async def leave(self) -> None:
        """Last step. Raises CoordinationFailed."""
        ...
