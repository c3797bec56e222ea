"""What a person is told who waits for acknowledgements."""

from millstream.cli.delayed_acks import Acknowledged, Hindered, Patience, reason


def partition(leader: int | None, in_sync: tuple[int, ...]) -> Hindered:
    return Hindered(4, leader, (1, 2, 3), in_sync)


def test_too_few_in_sync_are_named_with_who_is_missing_and_the_remedy() -> None:
    told = reason([partition(1, (1,))], 2)
    assert told is not None
    assert told.startswith("partition 4 has 1 replica in sync and min.insync.replicas is 2")
    assert "nodes 2, 3 are down or behind" in told
    assert "Start them" in told


def test_a_partition_without_a_leader_comes_first() -> None:
    told = reason([partition(1, (1,)), partition(None, ())], 2)
    assert told is not None
    assert "has no leader" in told


def test_where_enough_are_in_sync_there_is_no_reason() -> None:
    assert reason([partition(1, (1, 2))], 2) is None
    # More than there are replicas counts as all of them.
    assert reason([partition(1, (1, 2, 3))], 5) is None


WAITING = Acknowledged(count=7, waiting_count=1)


def test_it_is_said_after_two_seconds_and_again_rarely() -> None:
    patience = Patience(now=0.0)
    said = [
        now
        for now in range(40)
        if patience.is_over(WAITING, now=float(now)) and patience.is_due("why", now=float(now))
    ]
    assert said == [2, 17, 32]


def test_another_reason_is_said_at_once() -> None:
    patience = Patience(now=0.0)
    assert patience.is_due("nobody knows", now=2.0)
    assert patience.is_due("two nodes are away", now=2.5)
    assert not patience.is_due("two nodes are away", now=3.0)


def test_nothing_is_said_while_records_are_acknowledged_or_none_wait() -> None:
    patience = Patience(now=0.0)
    for now in range(40):
        assert not patience.is_over(Acknowledged(count=now, waiting_count=1), now=float(now))
    for now in range(40, 80):
        assert not patience.is_over(Acknowledged(count=40, waiting_count=0), now=float(now))
