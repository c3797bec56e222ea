from millstream.coordinators.deadlines import Deadlines
from millstream.coordinators.decision import Deadline, DeadlineKey, DeadlineKind


def key(name: str) -> DeadlineKey:
    return DeadlineKey(DeadlineKind.SESSION, "g", name)


def test_a_deadline_comes_up_once_at_its_time() -> None:
    deadlines = Deadlines()
    deadlines.set(Deadline(key("a"), 10))
    assert list(deadlines.due(9)) == []
    assert list(deadlines.due(10)) == [key("a")]
    assert list(deadlines.due(99)) == []


def test_a_deadline_that_moved_back_comes_up_later() -> None:
    deadlines = Deadlines()
    deadlines.set(Deadline(key("a"), 10))
    deadlines.set(Deadline(key("a"), 20))
    assert list(deadlines.due(15)) == []
    assert deadlines.next_at_ms() == 20
    assert list(deadlines.due(20)) == [key("a")]


def test_a_deadline_that_moved_forward_comes_up_sooner() -> None:
    deadlines = Deadlines()
    deadlines.set(Deadline(key("a"), 20))
    deadlines.set(Deadline(key("a"), 10))
    assert list(deadlines.due(10)) == [key("a")]
    assert list(deadlines.due(30)) == []


def test_a_deadline_can_be_called_off() -> None:
    deadlines = Deadlines()
    deadlines.set(Deadline(key("a"), 10))
    deadlines.set(Deadline(key("a"), None))
    assert list(deadlines.due(10)) == []
    assert len(deadlines) == 0


def test_an_earlier_wish_stands_against_one_that_is_only_for_new() -> None:
    deadlines = Deadlines()
    deadlines.set(Deadline(key("a"), 10))
    deadlines.set(Deadline(key("a"), 30, is_new_only=True))
    assert list(deadlines.due(10)) == [key("a")]


def test_many_moves_leave_a_small_heap() -> None:
    deadlines = Deadlines()
    for now in range(10_000):
        deadlines.set(Deadline(key("a"), now + 100))
    assert deadlines.next_at_ms() == 100
    assert list(deadlines.due(10_098)) == []
    assert list(deadlines.due(10_099)) == [key("a")]


def test_what_one_deadline_causes_can_call_off_the_next() -> None:
    deadlines = Deadlines()
    deadlines.set(Deadline(key("a"), 10))
    deadlines.set(Deadline(key("b"), 10))
    seen = []
    for each in deadlines.due(10):
        seen.append(each.member_id)
        deadlines.set(Deadline(key("b"), None))
    assert seen == ["a"]
