"""Sets of tasks: which are in both, which in one, and who owns them. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import field

from millstream.coordinators.codecs.streams_changes import (
    OwnedTasks,
    TaskAssignment,
    TaskEpochs,
    Tasks,
)
from millstream.lazy_dataclass import dataclass

# A subtopology and a partition.
Task = tuple[str, int]


def tasks_of(found: Iterable[Task]) -> Tasks:
    """The canonical form: sorted, and without subtopologies that have no tasks."""
    partitions: dict[str, set[int]] = {}
    for subtopology_id, partition in found:
        partitions.setdefault(subtopology_id, set()).add(partition)
    return {each: tuple(sorted(partitions[each])) for each in sorted(partitions)}


def each_task(tasks: Tasks | TaskEpochs) -> Iterator[Task]:
    for subtopology_id, partitions in tasks.items():
        for partition in partitions:
            yield subtopology_id, partition


def with_epochs(epochs: Iterable[tuple[Task, int]]) -> TaskEpochs:
    """The canonical form of active tasks."""
    found: TaskEpochs = {}
    for (subtopology_id, partition), epoch in sorted(epochs):
        found.setdefault(subtopology_id, {})[partition] = epoch
    return found


def without_epochs(owned: OwnedTasks) -> TaskAssignment:
    active = {each: tuple(sorted(owned.active[each])) for each in owned.active}
    return TaskAssignment(active, owned.standby, owned.warmup)


def covers(tasks: TaskAssignment, other: TaskAssignment) -> bool:
    """Whether all of `other` is in `tasks`, in the same roles."""
    return all(
        set(partitions).issubset(whole.get(subtopology_id, ()))
        for whole, parts in _by_role(tasks, other)
        for subtopology_id, partitions in parts.items()
    )


def overlap(tasks: TaskAssignment, other: TaskAssignment) -> bool:
    """Whether a task is in both, in the same role."""
    return any(
        not set(partitions).isdisjoint(another.get(subtopology_id, ()))
        for one, another in _by_role(tasks, other)
        for subtopology_id, partitions in one.items()
    )


def _by_role(one: TaskAssignment, other: TaskAssignment) -> tuple[tuple[Tasks, Tasks], ...]:
    return (
        (one.active, other.active),
        (one.standby, other.standby),
        (one.warmup, other.warmup),
    )


@dataclass(slots=True)
class TaskOwners:
    """Which processes have a task now, by role.

    At most one process runs a task; a process holds a task in one role only, because all roles
    use the same directory.
    """

    active: dict[Task, str] = field(default_factory=dict)
    copies: dict[Task, set[str]] = field(default_factory=dict)

    def add(self, process_id: str, owned: OwnedTasks) -> None:
        for task in each_task(owned.active):
            self.active[task] = process_id
        for tasks in (owned.standby, owned.warmup):
            for task in each_task(tasks):
                self.copies.setdefault(task, set()).add(process_id)

    def runs_anywhere(self, task: Task) -> bool:
        return task in self.active

    def is_held_by(self, task: Task, process_id: str) -> bool:
        return self.active.get(task) == process_id or process_id in self.copies.get(task, ())
