"""The sticky assignor: every task once, evenly, and where its state is."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as some

from millstream.coordinators.codecs.streams_changes import TaskAssignment
from millstream.coordinators.streams.assignor import AssignedMember, TaskCount, assign_sticky
from millstream.coordinators.streams.tasks import Task, each_task
from tests.coordinators.steps import steps

Result = dict[str, TaskAssignment]


def member(name: str, previous: TaskAssignment | None = None) -> AssignedMember:
    """The process is named after the first letter."""
    return AssignedMember(name, name[0], previous or TaskAssignment())


def active(result: Result) -> Counter[Task]:
    return Counter(task for tasks in result.values() for task in each_task(tasks.active))


def loads(result: Result) -> list[int]:
    return sorted(len(list(each_task(tasks.active))) for tasks in result.values())


def again(result: Result, *names: str) -> list[AssignedMember]:
    return [member(name, result.get(name)) for name in names]


STATEFUL = {"0": TaskCount(4, False), "1": TaskCount(4, True)}


def test_tasks_are_spread_evenly() -> None:
    result = assign_sticky([member("a"), member("b")], STATEFUL, standby_replicas=0)
    assert loads(result) == [4, 4]
    assert set(active(result).values()) == {1}


def test_a_process_with_more_threads_gets_more_tasks() -> None:
    members = [member("a1"), member("a2"), member("a3"), member("b1")]
    result = assign_sticky(members, STATEFUL, standby_replicas=0)
    assert loads(result) == [2, 2, 2, 2]


def test_a_new_member_takes_only_its_share() -> None:
    first = assign_sticky([member("a"), member("b")], STATEFUL, standby_replicas=0)
    second = assign_sticky(again(first, "a", "b", "c"), STATEFUL, standby_replicas=0)
    assert loads(second) == [2, 3, 3]
    for name in ("a", "b"):
        assert set(each_task(second[name].active)) <= set(each_task(first[name].active))


def test_nothing_moves_when_nothing_changes() -> None:
    names = ("a1", "a2", "b1", "c1")
    first = assign_sticky([member(name) for name in names], STATEFUL, standby_replicas=1)
    assert assign_sticky(again(first, *names), STATEFUL, standby_replicas=1) == first


def test_standbys_are_on_other_processes_and_only_of_tasks_with_state() -> None:
    members = [member("a1"), member("a2"), member("b1")]
    result = assign_sticky(members, STATEFUL, standby_replicas=1)
    standbys = {task: name for name, tasks in result.items() for task in each_task(tasks.standby)}
    assert set(standbys) == {("1", partition) for partition in range(4)}
    runs = {task: name for name, tasks in result.items() for task in each_task(tasks.active)}
    assert all(runs[task][0] != name[0] for task, name in standbys.items())


def test_with_one_process_there_are_no_standbys() -> None:
    result = assign_sticky([member("a1"), member("a2")], STATEFUL, standby_replicas=2)
    assert all(not tasks.standby for tasks in result.values())


def test_a_dead_members_tasks_go_where_their_standbys_are() -> None:
    # "d" has room but no state.
    counts = {"1": TaskCount(6, True)}
    ran = TaskAssignment({"1": (0, 1)}, {"1": (4, 5)})
    stood_by = TaskAssignment({"1": (2, 3)})
    members = [member("a", ran), member("b", stood_by), member("d")]
    result = assign_sticky(members, counts, standby_replicas=0)
    assert loads(result) == [2, 2, 2]
    members = [member("a", TaskAssignment({}, {"1": (4, 5)})), member("b", stood_by), member("d")]
    result = assign_sticky(members, counts, standby_replicas=0)
    assert result["a"].active == {"1": (4, 5)}


def test_a_member_that_loses_a_task_keeps_its_state_as_a_standby() -> None:
    counts = {"1": TaskCount(4, True)}
    had = TaskAssignment({"1": (0, 1, 2, 3)})
    result = assign_sticky([member("a", had), member("b")], counts, standby_replicas=1)
    assert set(each_task(result["a"].active)) | set(each_task(result["a"].standby)) == set(
        each_task(had.active)
    )


def test_no_members_get_nothing() -> None:
    assert assign_sticky([], STATEFUL, standby_replicas=1) == {}


@given(
    some.lists(some.sampled_from([p + t for p in "abcd" for t in "123"]), unique=True, min_size=1),
    some.lists(some.sampled_from([p + t for p in "abcd" for t in "123"]), unique=True, min_size=1),
    some.dictionaries(
        some.sampled_from("012"), some.builds(TaskCount, some.integers(1, 9), some.booleans())
    ),
    some.integers(0, 2),
)
def test_any_two_assignments_in_a_row_are_whole(
    before: list[str], after: list[str], counts: dict[str, TaskCount], replicas: int
) -> None:
    first = assign_sticky([member(n) for n in before], counts, standby_replicas=replicas)
    result = assign_sticky(again(first, *after), counts, standby_replicas=replicas)
    wanted = {(each, p) for each, count in counts.items() for p in range(count.tasks)}
    assert active(result) == Counter(wanted)
    assert loads(result)[-1] - loads(result)[0] <= max(1, len(wanted))
    held: Counter[tuple[str, Task]] = Counter()
    standbys: Counter[Task] = Counter()
    for name, tasks in result.items():
        held.update((name[0], task) for task in each_task(tasks.active))
        held.update((name[0], task) for task in each_task(tasks.standby))
        standbys.update(each_task(tasks.standby))
    # A process holds a task once; there are as many standbys as processes allow.
    assert set(held.values()) <= {1}
    processes = len({name[0] for name in after})
    for each, count in counts.items():
        expected = min(replicas, processes - 1) if count.is_stateful else 0
        assert all(standbys[each, p] == expected for p in range(count.tasks))


def test_many_threads_of_one_process_share_its_tasks_without_looking_at_each_other() -> None:
    counts = {"1": TaskCount(2000, True)}

    def work(threads: int) -> int:
        members = [member(f"a{number:03}") for number in range(threads)]
        return steps(lambda: assign_sticky(members, counts, standby_replicas=1))

    assert work(400) < 2 * work(100)
    result = assign_sticky([member(f"a{n:03}") for n in range(150)], counts, standby_replicas=0)
    assert set(loads(result)) == {13, 14}
