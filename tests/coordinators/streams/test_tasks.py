"""Sets of tasks, and who owns them."""

from millstream.coordinators.codecs.streams_changes import OwnedTasks, TaskAssignment
from millstream.coordinators.streams.tasks import (
    TaskOwners,
    covers,
    overlap,
    tasks_of,
    with_epochs,
    without_epochs,
)


def test_tasks_are_sorted_and_without_empty_subtopologies() -> None:
    assert tasks_of([("1", 2), ("0", 3), ("1", 0), ("1", 2)]) == {"0": (3,), "1": (0, 2)}
    assert list(tasks_of([("b", 0), ("a", 0)])) == ["a", "b"]
    assert with_epochs([(("1", 2), 7), (("0", 1), 5)]) == {"0": {1: 5}, "1": {2: 7}}
    owned = OwnedTasks({"0": {1: 5, 0: 4}}, {"1": (0,)})
    assert without_epochs(owned) == TaskAssignment({"0": (0, 1)}, {"1": (0,)})


def test_roles_are_compared_one_by_one() -> None:
    active, standby = TaskAssignment({"0": (0, 1)}), TaskAssignment({}, {"0": (0,)})
    assert covers(active, TaskAssignment({"0": (1,)}))
    assert not covers(active, standby)
    assert overlap(active, TaskAssignment({"0": (1, 2)}))
    assert not overlap(active, standby)


def test_a_process_holds_a_task_in_any_role() -> None:
    owners = TaskOwners()
    owners.add("p", OwnedTasks({"0": {0: 1}}, {"1": (0,)}, {"1": (1,)}))
    assert owners.runs_anywhere(("0", 0))
    assert not owners.runs_anywhere(("1", 0))
    assert all(owners.is_held_by(task, "p") for task in (("0", 0), ("1", 0), ("1", 1)))
    assert not owners.is_held_by(("0", 0), "q")
