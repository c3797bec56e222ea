from millstream.client.group_reset import Move, plan_moves
from millstream.client.start_position import FromOffset, FromTime
from millstream.model import TopicPartition

A, B, GONE = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("gone", 0)
FIRST, END = {A: 0, B: 5}, {A: 4, B: 10}


def test_each_partition_moves_as_far_as_it_can() -> None:
    moves = plan_moves([A, B], {B: 9}, FromOffset(7), first=FIRST, end=END, at={})
    assert moves == [Move(A, None, 4, 4), Move(B, 9, 7, 10)]


def test_a_time_after_the_last_record_is_the_end() -> None:
    moves = plan_moves([A, B], {}, FromTime(1), first=FIRST, end=END, at={A: 2, B: -1})
    assert [move.after for move in moves] == [2, 10]


def test_commits_for_a_deleted_topic_stay() -> None:
    assert plan_moves([GONE], {GONE: 3}, FromOffset(0), first=FIRST, end=END, at={}) == []
