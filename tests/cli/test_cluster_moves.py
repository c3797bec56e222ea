from typing import NoReturn

import pytest

from millstream.cli.cluster_moves import (
    SETTLED_SECONDS,
    Pace,
    Running,
    cancel_moves,
    explained,
    pace_of,
    show_plan,
)
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cluster.rebalancing import Move
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.wire.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from tests.cli.cluster_views import FakeCluster, partition, view

PACE = Pace(50_000_000, 10)
REORDER = Move(TopicPartition("t", 0), (1, 2, 3), (3, 2, 1), 0)
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


def test_a_plan_says_which_topics_are_throttled_as_a_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_plan([Move(TopicPartition("t", n), (1,), (2,), 0) for n in range(6_000)], PACE)
    assert "t: too many moves to list" in capsys.readouterr().out


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


def test_a_move_that_has_ended_is_not_cancelled() -> None:
    moving = partition(0, replicas=(1, 3, 2), adding=(3,), removing=(2,))
    cluster = FakeCluster(view(moving, partition(1)))
    ended = TopicPartition("t", 1)
    refusals = cancel_moves(cluster, [MOVE.where, ended])
    assert {where: one.code for where, one in refusals.items()} == {
        ended: KafkaCode.NO_REASSIGNMENT_IN_PROGRESS
    }


def test_a_move_that_could_not_be_started_is_started_in_the_next_step() -> None:
    class WithoutController(FakeCluster):
        def _reassigned(self, request: AlterPartitionReassignmentsRequest) -> NoReturn:
            raise CommandFailed("refused the connection", exit_code=ExitCode.UNREACHABLE)

    seen = view(partition(replicas=(1, 2, 3)))
    one = Running("h1:9092", [REORDER], PACE, pending=[REORDER])
    with pytest.raises(CommandFailed):
        one.step(WithoutController(seen))
    assert (one.pending, one.active) == ([REORDER], {})
    one.step(FakeCluster(seen))
    assert (one.pending, one.active) == ([], {REORDER.where: REORDER})


def test_a_move_waits_for_a_node_that_is_restarting() -> None:
    one = Running("h1:9092", [REORDER], PACE, pending=[REORDER])
    without = view(partition(replicas=(1, 2, 3)), nodes=(1, 2))
    one.step(FakeCluster(without))
    assert (one.pending, one.active) == ([REORDER], {})
    assert explained(without, one.pending, PACE) == [
        "node 3 is not alive and should have replicas: start it"
    ]
    one.step(FakeCluster(view(partition(replicas=(1, 2, 3)))))
    assert (one.pending, one.active) == ([], {REORDER.where: REORDER})


def two_pending() -> tuple[Running, FakeCluster]:
    """Only one moves at a time."""
    moves = [REORDER, Move(TopicPartition("t", 1), (1, 2, 3), (3, 2, 1), 0)]
    cluster = FakeCluster(view(partition(0), partition(1)))
    return Running("h1:9092", moves, Pace(1, 1), pending=list(moves)), cluster


def test_a_pending_move_of_a_topic_that_was_deleted_holds_up_no_others() -> None:
    one, cluster = two_pending()
    del cluster.view.partitions[REORDER.where]
    one.step(cluster)
    assert (one.pending, list(one.active)) == ([], [TopicPartition("t", 1)])
    with pytest.raises(CommandFailed, match=r"as that of t-0: somebody .* deleted the topic"):
        one.check_undone()


@pytest.mark.parametrize(
    "code",
    [
        KafkaCode.REQUEST_TIMED_OUT,
        KafkaCode.NOT_CONTROLLER,
        KafkaCode.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaCode.INVALID_REPLICA_ASSIGNMENT,
    ],
)
def test_a_move_that_cannot_start_now_starts_later_and_holds_up_no_others(code: KafkaCode) -> None:
    one, cluster = two_pending()
    cluster.refusals[REORDER.where] = code
    one.step(cluster)
    assert one.active == {}
    assert one.refused == {REORDER.where: code.name}
    one.step(cluster)
    assert list(one.active) == [TopicPartition("t", 1)]
    one.active.clear()
    cluster.refusals.clear()
    one.step(cluster)
    assert (one.pending, list(one.active)) == ([], [REORDER.where])
    assert (one.refused, one.undone) == ({}, {})


def test_a_move_that_the_cluster_refuses_is_left_out_and_reported() -> None:
    one, cluster = two_pending()
    cluster.refusals[REORDER.where] = KafkaCode.INVALID_REPLICATION_FACTOR
    one.step(cluster)
    one.step(cluster)
    assert (one.pending, list(one.active)) == ([], [TopicPartition("t", 1)])
    with pytest.raises(CommandFailed, match="as that of t-0: INVALID_REPLICATION_FACTOR"):
        one.check_undone()


def running() -> Running:
    """`MOVE` has begun."""
    return Running("h1:9092", [MOVE], PACE, active={MOVE.where: MOVE})


def test_a_move_is_done_when_its_replicas_are_as_planned() -> None:
    one = running()
    one.settle(view(partition(replicas=(1, 3, 2), adding=(3,), removing=(2,))), 10.0)
    assert one.active
    one.settle(view(partition(replicas=(1, 3))), 11.0)
    assert (one.active, one.undone, one.done_bytes) == ({}, {}, MOVE.copied_bytes)


def test_a_node_that_has_not_heard_of_the_end_is_asked_again() -> None:
    one = running()
    one.settle(view(partition(replicas=(1, 3, 2))), 10.0)
    assert one.active
    one.settle(view(partition(replicas=(1, 3))), 10.0 + SETTLED_SECONDS)
    assert one.undone == {}


@pytest.mark.parametrize("seen", [view(), view(partition(replicas=(1, 2)))])
def test_a_move_that_somebody_undid_is_reported(seen) -> None:
    one = running()
    one.settle(seen, 10.0)
    one.settle(seen, 10.0 + SETTLED_SECONDS)
    assert (one.active, list(one.undone)) == ({}, [MOVE.where])
    with pytest.raises(CommandFailed, match="1 move did not end as planned, as that of t-0"):
        one.check_undone()


def test_what_an_earlier_run_has_copied_does_not_count_for_the_time_left() -> None:
    one = running()
    one.begin_estimate(2_000_000_000, 100.0)
    text = one.text(3_000_000_000, 110.0)
    assert text == "0 of 1 partition moved, 3.0 GB of 4.0 GB, 10 s left"
