import uuid

from millstream.cluster.election import Nodes
from millstream.cluster.leader_balance import returns
from millstream.cluster.state import PartitionState, TopicState


def state(leader: int, replicas=(1, 2, 3), **more) -> PartitionState:
    more.setdefault("isr", replicas)
    return PartitionState(leader, 4, replicas=replicas, version=0, **more)


def returned(*states: PartitionState, percentage_max=10, live=(1, 2, 3), stopping=()) -> list[int]:
    """The partitions that get another leader."""
    topic = TopicState("t", uuid.UUID(int=1), list(states))
    nodes = Nodes(frozenset(live), frozenset(stopping))
    found = returns([topic], nodes, percentage_max=percentage_max)
    for one in found:
        assert one.after.leader == one.after.replicas[0]
        assert one.after.leader_epoch == one.before.leader_epoch + 1
    return [one.where.partition for one in found]


def test_what_others_lead_returns():
    assert returned(state(1), state(2), state(3)) == [1, 2]


def test_up_to_the_percentage_nothing_moves():
    mostly = [state(2), *[state(1)] * 9]
    assert returned(*mostly, percentage_max=10) == []
    assert returned(*mostly, percentage_max=9) == [0]


def test_the_share_is_compared_for_each_node():
    # One of node 1's ten, and the only one of node 2.
    found = returned(state(2), *[state(1)] * 9, state(1, (2, 1, 3)), percentage_max=10)
    assert found == [10]


def test_a_replica_that_cannot_lead_stays_a_follower():
    assert returned(state(2, isr=(2, 3))) == []
    assert returned(state(2), live=(2, 3)) == []
    assert returned(state(2), stopping=(1,)) == []


def test_a_partition_that_moves_is_left_alone():
    assert returned(state(2, (1, 2, 3), removing=(3,))) == []
