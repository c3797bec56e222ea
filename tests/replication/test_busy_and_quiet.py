from millstream.replication.busy_and_quiet import BusyAndQuiet, QuietRule


def parted(*names: str, count_min: int = 2) -> BusyAndQuiet[str]:
    made: BusyAndQuiet[str] = BusyAndQuiet(QuietRule(after_seconds=2.0, count_min=count_min))
    for name in names:
        made.add(name, now=0.0)
    return made


def test_who_is_new_is_busy() -> None:
    one = parted("a", "b")
    one.settle(now=1.9)
    assert one.busy == ["a", "b"]
    assert one.quiet == []


def test_where_nothing_happens_for_a_while_it_is_quiet() -> None:
    one = parted("a", "b", "c")
    one.happened("b", now=1.0)
    one.settle(now=2.0)
    assert one.busy == ["b"]
    assert one.quiet == ["a", "c"]
    assert len(one) == 3


def test_a_few_quiet_ones_stay_where_they_are() -> None:
    one = parted("a", "b", "c", count_min=4)
    one.settle(now=10.0)
    assert one.quiet == []
    one.add("d", now=10.0)
    one.settle(now=12.0)
    assert sorted(one.quiet) == ["a", "b", "c", "d"]


def test_once_there_are_enough_of_them_each_further_one_joins() -> None:
    one = parted("a", "b", "c")
    one.happened("c", now=1.0)
    one.settle(now=2.0)
    one.settle(now=3.0)
    assert one.quiet == ["a", "b", "c"]


def test_what_happens_in_a_quiet_one_makes_it_busy_and_is_told() -> None:
    one = parted("a", "b")
    one.settle(now=2.0)
    assert one.happened("a", now=2.5)
    assert not one.happened("a", now=2.6)
    assert one.busy == ["a"]
    assert one.quiet == ["b"]


def test_who_got_something_is_asked_for_after_the_others() -> None:
    one = parted("a", "b", "c")
    one.happened("a", now=1.0)
    assert one.busy == ["b", "c", "a"]


def test_who_has_left_is_in_neither() -> None:
    one = parted("a", "b")
    one.settle(now=2.0)
    one.remove("a")
    assert "a" not in one
    assert "b" in one
    assert one.quiet == ["b"]


def test_who_follows_anew_is_busy_again() -> None:
    one = parted("a", "b")
    one.settle(now=2.0)
    one.add("a", now=2.0)
    assert one.busy == ["a"]
    assert one.quiet == ["b"]
