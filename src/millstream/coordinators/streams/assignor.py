"""The sticky assignor of streams groups: it computes the target assignment. Pure.

Every active task gets exactly one member, every stateful task up to `standby_replicas` standbys
on other processes. Members keep what they had, up to an even share; a task whose owner is gone
goes to a member that has its state as a standby; the rest goes to the process with the least
tasks per thread. Warm-ups are not assigned: Kafka 4.3 assigns none.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from millstream.coordinators.codecs.streams_changes import TaskAssignment
from millstream.coordinators.streams.tasks import Task, each_task, tasks_of
from millstream.lazy_dataclass import dataclass


@dataclass(slots=True)
class AssignedMember:
    member_id: str
    process_id: str
    # Its target in the previous epoch.
    previous: TaskAssignment = field(default_factory=TaskAssignment)


@dataclass(frozen=True, slots=True)
class TaskCount:
    """Of one subtopology."""

    tasks: int
    is_stateful: bool


@dataclass(slots=True)
class _Member:
    member_id: str
    process: "_Process"
    active: set[Task] = field(default_factory=set)
    standby: set[Task] = field(default_factory=set)

    @property
    def load(self) -> int:
        return len(self.active) + len(self.standby)


@dataclass(slots=True)
class _Process:
    """Its threads share a state directory: it holds a task once."""

    process_id: str
    members: list[_Member] = field(default_factory=list)
    tasks: set[Task] = field(default_factory=set)
    # Its members by their loads, which may have grown since: loads never shrink.
    _by_load: list[tuple[int, int, _Member]] = field(default_factory=list)

    @property
    def load(self) -> float:
        return len(self.tasks) / len(self.members)

    def least_loaded(self) -> _Member:
        """The first of those with the fewest tasks."""
        heap = self._by_load
        if len(heap) < len(self.members):
            heap[:] = [(each.load, number, each) for number, each in enumerate(self.members)]
            heapq.heapify(heap)
        while True:
            load, number, member = heap[0]
            if load == member.load:
                return member
            heapq.heapreplace(heap, (member.load, number, member))


class _Quota:
    """How many tasks a member may get: an even share of what is left for those with room."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.share = _share(tasks, members)

    def has_room(self, member: _Member) -> bool:
        return member.load < self.share

    def count(self, member: _Member) -> None:
        if member.load == self.share:
            self._members -= 1
            self._tasks -= self.share
            self.share = _share(self._tasks, self._members)


def _share(tasks: int, members: int) -> int:
    return -(-tasks // members) if members > 0 else 0


def assign_sticky(
    members: Sequence[AssignedMember],
    subtopologies: Mapping[str, TaskCount],
    *,
    standby_replicas: int,
) -> dict[str, TaskAssignment]:
    if not members:
        return {}
    draft = _Draft(members, subtopologies, standby_replicas)
    draft.assign_active(_all_tasks(subtopologies))
    if standby_replicas > 0:
        stateful = {each: count for each, count in subtopologies.items() if count.is_stateful}
        draft.assign_standby(_all_tasks(stateful), standby_replicas)
    return {
        member.member_id: TaskAssignment(tasks_of(member.active), tasks_of(member.standby))
        for member in draft.members.values()
    }


def _all_tasks(subtopologies: Mapping[str, TaskCount]) -> list[Task]:
    return [
        (subtopology_id, partition)
        for subtopology_id in sorted(subtopologies)
        for partition in range(subtopologies[subtopology_id].tasks)
    ]


class _Draft:
    def __init__(
        self,
        members: Sequence[AssignedMember],
        subtopologies: Mapping[str, TaskCount],
        standby_replicas: int,
    ) -> None:
        self.members: dict[str, _Member] = {}
        self.processes: dict[str, _Process] = {}
        # Who had a task in the previous epoch.
        self._ran: dict[Task, _Member] = {}
        self._stood_by: dict[Task, list[_Member]] = {}
        for each in sorted(members, key=lambda member: member.member_id):
            process = self.processes.setdefault(each.process_id, _Process(each.process_id))
            member = _Member(each.member_id, process)
            process.members.append(member)
            self.members[each.member_id] = member
            for task in each_task(each.previous.active):
                self._ran[task] = member
            for task in each_task(each.previous.standby):
                self._stood_by.setdefault(task, []).append(member)
        active = sum(count.tasks for count in subtopologies.values())
        stateful = sum(count.tasks for count in subtopologies.values() if count.is_stateful)
        self._active_quota = _Quota(active, len(self.members))
        self._quota = _Quota(active + stateful * standby_replicas, len(self.members))

    # -- active tasks -----------------------------------------------------------------

    def assign_active(self, tasks: Iterable[Task]) -> None:
        # By partition first: the quota then spreads each subtopology over the members.
        left = sorted(tasks, key=lambda task: (task[1], task[0]))
        left = [task for task in left if not self._run_if_room(self._ran.get(task), task)]
        left = [task for task in left if not self._run_if_room(self._best_standby(task), task)]
        heap = self._heap()
        for task in sorted(left):
            _, number, process = heapq.heappop(heap)
            self._run(process.least_loaded(), task)
            heapq.heappush(heap, (process.load, number, process))

    def _run_if_room(self, member: _Member | None, task: Task) -> bool:
        if member is None or not self._active_quota.has_room(member):
            return False
        self._run(member, task)
        return True

    def _run(self, member: _Member, task: Task) -> None:
        member.active.add(task)
        member.process.tasks.add(task)
        self._active_quota.count(member)
        self._quota.count(member)

    def _best_standby(self, task: Task) -> _Member | None:
        """The least loaded of those that had the task as a standby and can hold it now."""
        able = [m for m in self._stood_by.get(task, ()) if task not in m.process.tasks]
        return min(able, key=lambda member: (member.process.load, member.load), default=None)

    # -- standby tasks ----------------------------------------------------------------

    def assign_standby(self, tasks: Iterable[Task], replicas: int) -> None:
        left = []
        for task in sorted(tasks, key=lambda task: (task[1], task[0]), reverse=True):
            wanted = replicas
            while wanted > 0 and (member := self._previous_holder(task)) is not None:
                self._stand_by(member, task)
                wanted -= 1
            if wanted > 0:
                left.append((task, wanted))
        heap = self._heap()
        for task, wanted in sorted(left, reverse=True):
            self._spread_standbys(heap, task, wanted)

    def _previous_holder(self, task: Task) -> _Member | None:
        """A member that has the task's state on its disk, and room for it."""
        ran = self._ran.get(task)
        for member in (ran, self._best_standby(task)):
            if (
                member is not None
                and task not in member.process.tasks
                and self._quota.has_room(member)
            ):
                return member
        return None

    def _spread_standbys(
        self, heap: list[tuple[float, int, _Process]], task: Task, wanted: int
    ) -> None:
        """With too few processes there are fewer standbys than wanted."""
        taken = []
        while wanted > 0 and heap:
            _, number, process = heapq.heappop(heap)
            if task not in process.tasks:
                self._stand_by(process.least_loaded(), task)
                wanted -= 1
            taken.append((process.load, number, process))
        for entry in taken:
            heapq.heappush(heap, entry)

    def _stand_by(self, member: _Member, task: Task) -> None:
        member.standby.add(task)
        member.process.tasks.add(task)
        self._quota.count(member)

    def _heap(self) -> list[tuple[float, int, _Process]]:
        """Processes by their load; the number prevents a comparison of processes."""
        heap = [(each.load, number, each) for number, each in enumerate(self.processes.values())]
        heapq.heapify(heap)
        return heap
