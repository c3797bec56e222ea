from millstream.cli.cluster_throttle import (
    remove_unused_throttle,
    set_throttle,
    throttled_replicas,
    topics_throttled_whole,
    unused_lists,
)
from millstream.cli.cluster_view import BROKER, TOPIC
from millstream.cluster.rebalancing import Move
from millstream.model import TopicPartition
from tests.cli.cluster_views import FakeCluster, partition, view

LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"
RATES = {
    "leader.replication.throttled.rate": "5000",
    "follower.replication.throttled.rate": "5000",
}
MOVE = Move(TopicPartition("t", 0), (1, 2), (1, 3), 100)
AT_REST = view(partition(0, replicas=(1, 3)), partition(0, topic="u"))
MOVING = view(
    partition(0, replicas=(1, 3)),
    partition(0, topic="u", replicas=(1, 3, 2), adding=(3,), removing=(2,)),
)


def throttled(cluster: FakeCluster) -> FakeCluster:
    """As a command that was killed leaves it."""
    for topic in ("t", "u"):
        cluster.options[TOPIC, topic] = {LEADERS: "0:1,0:2", FOLLOWERS: "0:3"}
    for node in ("1", "2", "3"):
        cluster.options[BROKER, node] = dict(RATES)
    return cluster


def test_a_throttle_names_who_sends_and_who_receives() -> None:
    cluster = FakeCluster(view(partition(0, replicas=(1, 2)), nodes=(1, 2, 3, 4)))
    set_throttle(cluster, [MOVE], 5000)
    assert cluster.options == {
        (TOPIC, "t"): {LEADERS: "0:1,0:2", FOLLOWERS: "0:3"},
        (BROKER, "1"): RATES,
        (BROKER, "2"): RATES,
        (BROKER, "3"): RATES,
    }


def test_a_topic_that_was_deleted_after_the_plan_is_not_throttled() -> None:
    cluster = FakeCluster(view(partition(0, replicas=(1, 2))))
    set_throttle(cluster, [Move(TopicPartition("gone", 0), (1, 2), (1, 3), 100), MOVE], 5000)
    assert (TOPIC, "gone") not in cluster.options
    assert cluster.options[TOPIC, "t"]


def test_other_moves_of_the_topic_stay_throttled() -> None:
    seen = view(
        partition(0, replicas=(1, 2)),
        partition(1, replicas=(2, 3, 1), adding=(3,), removing=(1,)),
        partition(2),
    )
    assert throttled_replicas(seen, [MOVE]) == {"t": ("0:1,0:2,1:2,1:1", "0:3,1:3")}


def test_what_only_changes_its_order_is_not_throttled() -> None:
    assert throttled_replicas(AT_REST, [Move(MOVE.where, (1, 2), (2, 1), 100)]) == {}


def test_a_throttle_that_was_left_is_removed() -> None:
    cluster = throttled(FakeCluster(AT_REST))
    assert remove_unused_throttle(cluster) == ["t", "u"]
    assert cluster.options == {}


def test_moves_in_progress_keep_their_throttle() -> None:
    cluster = throttled(FakeCluster(MOVING))
    assert remove_unused_throttle(cluster) == ["t"]
    assert (TOPIC, "t") not in cluster.options
    assert cluster.options[TOPIC, "u"]
    assert cluster.options[BROKER, "1"] == RATES


def test_rates_of_a_topic_that_was_deleted_are_removed() -> None:
    cluster = FakeCluster(AT_REST)
    cluster.options[BROKER, "1"] = dict(RATES)
    assert remove_unused_throttle(cluster, moves=[MOVE]) == []
    assert cluster.options == {}


def test_a_throttle_of_all_replicas_is_not_one_of_moves() -> None:
    cluster = FakeCluster(AT_REST)
    cluster.options = {(TOPIC, "t"): {LEADERS: "*", FOLLOWERS: "*"}, (BROKER, "1"): dict(RATES)}
    assert remove_unused_throttle(cluster) == []
    assert cluster.options[BROKER, "1"] == RATES


def test_a_list_is_unused_if_nothing_of_its_topic_moves() -> None:
    assert unused_lists(MOVING, ["t", "u"]) == ["t"]


def test_more_moves_than_an_option_can_list_throttle_the_topic_and_leave_nothing() -> None:
    many = [Move(TopicPartition("t", number), (1,), (2,), 100) for number in range(6_000)]
    some = [Move(TopicPartition("u", number), (1,), (2,), 100) for number in range(1_000)]
    assert topics_throttled_whole([*many, *some]) == ["t"]
    partitions = [partition(move.where.partition, replicas=(1,)) for move in many]
    cluster = FakeCluster(view(*partitions, partition(0, topic="u")))
    set_throttle(cluster, [*many, *some], 5000)
    assert cluster.options[TOPIC, "t"] == {LEADERS: "*", FOLLOWERS: "*"}
    assert cluster.options[TOPIC, "u"][FOLLOWERS].startswith("0:2,1:2,")
    assert remove_unused_throttle(cluster, moves=[*many, *some]) == ["t", "u"]
    assert cluster.options == {}


def test_only_the_list_that_is_too_long_names_all() -> None:
    moves = [Move(TopicPartition("t", n), (1, 2, 3), (1, 2, 4), 100) for n in range(2_000)]
    lists = throttled_replicas(view(partition(0)), moves)
    leaders, followers = lists["t"]
    assert leaders == "*"
    assert len(followers) < 32_767
    assert followers.endswith(",1999:4")


def test_a_killed_command_leaves_the_throttle_of_a_whole_topic_to_the_same_moves() -> None:
    cluster = FakeCluster(AT_REST)
    cluster.options = {(TOPIC, "t"): {LEADERS: "*", FOLLOWERS: "*"}, (BROKER, "1"): dict(RATES)}
    assert remove_unused_throttle(cluster) == []
    assert remove_unused_throttle(cluster, moves=[MOVE]) == ["t"]
    assert cluster.options == {}
