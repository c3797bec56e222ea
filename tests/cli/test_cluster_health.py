from pathlib import Path

import pytest

from millstream.cli.cluster_health import Disk, Problem, found_problems, remembered
from tests.cli.cluster_views import partition, view


def texts(*partitions, nodes=(1, 2, 3), disks=(), min_isr=2) -> list[tuple[str, bool]]:
    found = found_problems(view(*partitions, nodes=nodes), disks, {"t": min_isr})
    return [(one.text, one.is_notice) for one in found]


def test_a_healthy_cluster_has_no_problem() -> None:
    assert texts(partition(0), partition(1)) == []


@pytest.mark.parametrize(
    ("state", "text", "is_notice"),
    [
        (partition(leader=-1, in_sync=()), "has no leader", False),
        (partition(in_sync=(1,)), "fewer replicas in sync than min.insync.replicas", False),
        (partition(in_sync=(1, 2)), "not in sync", False),
        (partition(adding=(3,), in_sync=(1, 2)), "is moving", True),
        # Until the new ones have a copy, the one that was there is enough.
        (partition(adding=(2, 3), in_sync=(1,)), "is moving", True),
        (partition(leader=2), "not led by the preferred replica", True),
    ],
)
def test_a_partition_is_in_its_worst_group(state, text: str, is_notice: bool) -> None:
    [(found, notice)] = texts(state)
    assert text in found
    assert "t-0" in found
    assert notice is is_notice


def test_a_missing_node_is_named_with_what_it_has() -> None:
    found = texts(partition(0, in_sync=(1, 2)), nodes=(1, 2))
    assert found[0] == ("node 3 is not alive; it has replicas of 1 partition", False)


def test_a_node_that_does_not_answer_is_a_problem() -> None:
    [follower] = found_problems(view(partition(0)), [], {}, silent=[2])
    assert follower.text == "node 2 does not answer, and counts as alive"
    assert not follower.is_notice
    [controller] = found_problems(view(partition(0)), [], {}, silent=[1])
    assert controller.text.startswith("node 1, the controller, does not answer")


def test_full_and_failed_disks_are_named() -> None:
    disks = [
        Disk(1, "/d", False, 1000, 500),
        Disk(2, "/d", False, 1000, 50),
        Disk(3, "/d", True, -1, -1),
    ]
    assert texts(disks=disks) == [
        ("the disk of node 2 is 95% full, 50 B are left", False),
        ("the data directory /d of node 3 has failed", False),
    ]


def test_problems_are_remembered_until_they_are_over(tmp_path: Path) -> None:
    path = tmp_path / "state" / "health.json"
    one, two = Problem(("one",), "", ""), Problem(("two",), "", "")
    assert remembered(path, [one], 100.0) == {one: 100.0}
    assert remembered(path, [one, two], 160.0) == {one: 100.0, two: 160.0}
    assert remembered(path, [two], 170.0) == {two: 160.0}
    assert remembered(path, [one, two], 180.0) == {one: 180.0, two: 160.0}


def test_a_problem_that_spreads_lasts_since_it_began(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    [few] = found_problems(view(partition(0, in_sync=(1, 2))), [], {})
    [more] = found_problems(view(*(partition(n, in_sync=(1, 2)) for n in range(9))), [], {})
    assert remembered(path, [few], 100.0) == {few: 100.0}
    assert remembered(path, [more], 160.0) == {more: 100.0}


def test_a_damaged_memory_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    path.write_text("{")
    one = Problem(("one",), "", "")
    assert remembered(path, [one], 5.0) == {one: 5.0}


def test_a_throttle_that_was_left_is_a_notice() -> None:
    [left] = found_problems(view(partition(0)), [], {}, ["t"])
    assert "the throttle of moves is still set for t" in left.text
    assert left.is_notice
    moving = view(partition(0, adding=(3,)))
    assert len(found_problems(moving, [], {}, ["t"])) == 1


def test_what_is_said_of_one_partition_is_in_the_singular() -> None:
    [found] = found_problems(view(partition(leader=-1)), [], {})
    assert found.text == "1 partition has no leader and cannot be used: t-0"
