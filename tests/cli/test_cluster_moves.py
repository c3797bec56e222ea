import pytest

from millstream.cli.cluster_moves import Pace, explained, pace_of, show_plan
from millstream.cluster.rebalancing import Move
from millstream.model import TopicPartition
from tests.cli.cluster_views import partition, view

PACE = Pace(50_000_000, 10)
MOVE = Move(TopicPartition("t", 0), (1, 2), (1, 3), 4_000_000_000)


def test_a_plan_says_how_much_is_copied_and_how_long_at_least(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_plan([MOVE], PACE)
    text = capsys.readouterr().out
    assert "1 partition, 4.0 GB to copy, at least 80 s at 50.0 MB/s per node" in text
    assert text.splitlines()[1].split() == ["t", "0", "1,2", "1,3", "4.0", "GB"]


def test_the_busiest_node_decides_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    other = Move(TopicPartition("t", 1), (1, 2), (1, 4), 4_000_000_000)
    show_plan([MOVE, other], PACE)
    assert "at least 80 s" in capsys.readouterr().out


def test_long_plans_are_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    show_plan([Move(TopicPartition("t", n), (1, 2), (2, 1), 0) for n in range(40)], PACE)
    assert "... and 10 more" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("state", "nodes", "reason"),
    [
        (partition(replicas=(1, 2, 3), adding=(3,)), (1, 2), "node 3 is not alive"),
        (partition(leader=-1, adding=(3,)), (1, 2, 3), "t-0 has no leader"),
        (partition(in_sync=(1, 2), adding=(3,)), (1, 2, 3), "node 3 has not caught up"),
        (partition(adding=(3,)), (1, 2, 3), "the controller, node 1, has not completed"),
    ],
)
def test_what_a_move_waits_for_is_said(state, nodes: tuple[int, ...], reason: str) -> None:
    [text] = explained(view(state, nodes=nodes), [MOVE], PACE)
    assert reason in text


def test_the_same_reason_is_said_once() -> None:
    other = Move(TopicPartition("t", 1), (1, 2), (1, 3), 1)
    [text] = explained(view(partition(0), partition(1), nodes=(1, 2)), [MOVE, other], PACE)
    assert text.endswith("(and 1 more)")


def test_a_pace_is_at_least_a_byte() -> None:
    assert pace_of(1e-9, 3) == Pace(1, 3)
