from millstream.cli.cluster_rebalance import leaderless_text
from millstream.cli.cluster_view import PartitionView
from millstream.cluster.rebalancing import Move
from tests.cli.cluster_views import partition, view


def text_of(*states: PartitionView, nodes: tuple[int, ...]) -> str | None:
    moves = [Move(one.where, one.replicas, nodes, 0) for one in states]
    return leaderless_text(view(*states, nodes=nodes), moves)


def test_a_plan_names_the_partitions_that_cannot_move_from_a_dead_node() -> None:
    led = partition(9, replicas=(1, 3), in_sync=(1,))
    stuck = [partition(n, leader=-1, replicas=(3, 1), in_sync=(3,)) for n in range(5)]
    assert text_of(led, *stuck, nodes=(1, 2)) == (
        "5 partitions without a leader cannot move now: t-0, t-1, t-2 and 2 more. What to do:"
        " start node 3 again; or where a replica is alive, have it elected, which may lose"
        " records: millstream cluster elect --unclean t:0"
    )
    assert text_of(led, nodes=(1, 2)) is None


def test_nobody_is_elected_where_no_replica_is_alive() -> None:
    stuck = [partition(n, leader=-1, replicas=(n + 3,)) for n in range(2)]
    assert text_of(*stuck, nodes=(1, 2)) == (
        "2 partitions without a leader cannot move now: t-0, t-1. What to do: start nodes 3,4 again"
    )
    mixed = [*stuck, partition(2, leader=-1, replicas=(2, 3), in_sync=(3,))]
    assert (text_of(*mixed, nodes=(1, 2)) or "").endswith("--unclean t:2")
