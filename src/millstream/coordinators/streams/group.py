"""A streams group (KIP-1071): its topology, members, the target of each, and what each owns.

State, and questions about it. The group moves through epochs: a change of members, of their
metadata, of the topics or of the settings raises `epoch`; `target_epoch` is the epoch of the
current target; a member's epoch is the one that its tasks have reached.

    Empty      no members
    NotReady   topics of the topology are missing or have the wrong number of partitions
    Assigning  the target is older than the group
    Reconciling  a member has not reached the target
    Stable
"""

from dataclasses import field
from typing import Final

from millstream.coordinators.codecs.streams_changes import (
    CurrentTasks,
    OwnedTasks,
    StoredStreamsMember,
    StreamsMemberState,
    TaskAssignment,
    Topology,
)
from millstream.coordinators.sizes import streams_member_bytes, topology_bytes
from millstream.coordinators.streams.tasks import TaskOwners, without_epochs
from millstream.coordinators.streams.topology import ConfiguredTopology, source_topics
from millstream.lazy_dataclass import dataclass

# Member epochs with a special meaning.
JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2

# A group's first epoch is the one after this, so that no member that has joined is in epoch 0.
FIRST_EPOCH: Final = 1


@dataclass(frozen=True, slots=True)
class Standing:
    """What the next step of a member depends on, besides what it owns."""

    owners_version: int
    target_epoch: int
    is_acknowledged: bool


@dataclass(slots=True)
class StreamsMember:
    stored: StoredStreamsMember
    current: CurrentTasks
    # What `stored` takes.
    size_bytes: int = 0
    # When its next step was last found to be to stay as it is, and what that depended on.
    stays: Standing | None = field(default=None, repr=False, compare=False)
    _tasks: TaskAssignment | None = field(default=None, repr=False, compare=False)

    @property
    def tasks(self) -> TaskAssignment:
        """Those assigned to it now, as it reports them."""
        if self._tasks is None:
            self._tasks = without_epochs(self.current.assigned)
        return self._tasks

    def set_current(self, current: CurrentTasks) -> None:
        self.current = current
        self._tasks = None


def no_tasks(epoch: int = JOINING_EPOCH) -> CurrentTasks:
    return CurrentTasks(epoch, epoch, StreamsMemberState.STABLE, OwnedTasks(), OwnedTasks())


_NOBODY: Final = StoredStreamsMember(None, None, "", "", -1, -1, "", None, ())


@dataclass(slots=True)
class StreamsGroup:
    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    validated_topology_epoch: int = -1
    assignment_configs: dict[str, str] = field(default_factory=dict)
    topology: Topology | None = None
    topology_bytes: int = 0
    members: dict[str, StreamsMember] = field(default_factory=dict)
    target_epoch: int = FIRST_EPOCH
    target_timestamp_ms: int = 0
    target: dict[str, TaskAssignment] = field(default_factory=dict)
    # Not in records. The topology with the topics as they were in the version seen.
    configured: ConfiguredTopology | None = None
    topics_version_seen: int = -1
    # Whether the group is new and waits for more members before its first target.
    is_gathering: bool = False
    # The members that have not confirmed their last assignment yet.
    unacknowledged: set[str] = field(default_factory=set)
    # The member that asked all others to shut down, until the group is empty.
    shutdown_requested_by: str | None = None
    # Grows when the tasks of a member with an endpoint change.
    endpoint_epoch: int = 0
    # Grows when a member comes, changes or goes, and when its tasks change.
    owners_version: int = 0

    @property
    def state_name(self) -> str:
        """Named as in StreamsGroupDescribe."""
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return "NotReady"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if not all(self.is_reconciled(member.current) for member in self.members.values()):
            return "Reconciling"
        return "Stable"

    def is_reconciled(self, current: CurrentTasks) -> bool:
        return current.state is StreamsMemberState.STABLE and current.epoch == self.target_epoch

    def is_subscribed_to(self, topic: str) -> bool:
        if not self.members or self.topology is None:
            return False
        return any(topic in source_topics(each) for each in self.topology.subtopologies)

    def tasks_of(self, member_id: str, owned: OwnedTasks) -> TaskAssignment:
        """As the member reports them. Most heartbeats ask for what it has already."""
        member = self.members.get(member_id)
        if member is not None and member.current.assigned is owned:
            return member.tasks
        return without_epochs(owned)

    def owners(self, *, without: str) -> TaskOwners:
        """Who owns tasks now, also those that they are about to give up."""
        owners = TaskOwners()
        for member_id, member in self.members.items():
            if member_id != without:
                owners.add(member.stored.process_id, member.current.assigned)
                owners.add(member.stored.process_id, member.current.revoking)
        return owners

    # -- changes, by `state` only -----------------------------------------------------

    def set_member(self, member_id: str, stored: StoredStreamsMember) -> None:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = StreamsMember(stored, no_tasks())
        else:
            member.stored = stored
        member.size_bytes = streams_member_bytes(stored)
        self.owners_version += 1

    def set_topology(self, topology: Topology | None) -> None:
        self.topology = topology
        self.topology_bytes = 0 if topology is None else topology_bytes(topology)

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        self.owners_version += 1
        self.unacknowledged.discard(member_id)
        if member is not None and member.stored.endpoint is not None:
            self.endpoint_epoch += 1
        if not self.members:
            self.shutdown_requested_by = None
            self.is_gathering = False

    def set_current(self, member_id: str, current: CurrentTasks) -> None:
        # After compaction a member's tasks may come before its metadata.
        member = self.members.setdefault(member_id, StreamsMember(_NOBODY, no_tasks()))
        member.set_current(current)
        self.owners_version += 1
