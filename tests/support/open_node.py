"""A node whose parts a test looks at: short names for what lies in its rooms."""

from millstream.broker.broker import Broker
from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.transactions import TransactionCoordinator
from millstream.broker.membership.member import Member
from millstream.broker.requests.permissions import Permissions
from millstream.clock import Clock
from millstream.cluster.membership import Membership
from millstream.cluster.state import ClusterImage
from millstream.replication.group_commit import Durability
from millstream.replication.table import PartitionTable
from millstream.storage.store import LogStore


class OpenNode(Broker):
    @property
    def node_id(self) -> int:
        return self.node.node_id

    @property
    def image(self) -> ClusterImage:
        return self.node.image

    @property
    def clock(self) -> Clock:
        return self.node.clock

    @property
    def partitions(self) -> PartitionTable:
        return self.node.partitions

    @property
    def store(self) -> LogStore:
        return self.node.disk.store

    @property
    def durability(self) -> Durability:
        return self.node.disk.durability

    @property
    def permissions(self) -> Permissions:
        return self.services.permissions

    @property
    def coordinators(self) -> GroupCoordinators:
        return self.coordination.groups

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.coordination.transactions

    @property
    def member(self) -> Member:
        """Of a node in a cluster."""
        assert isinstance(self.node.cluster, Member)
        return self.node.cluster

    @property
    def membership(self) -> Membership:
        return self.member.membership

    def fail_disk(self, reason: str) -> None:
        self.node.disk.fail(reason)
