from collections import Counter

import pytest

from millstream.cluster.placement import place_replicas


def test_one_node_gets_everything():
    assert place_replicas([7], partitions=3, replication_factor=1) == [(7,), (7,), (7,)]


@pytest.mark.parametrize("nodes", [2, 3, 5, 6])
@pytest.mark.parametrize("replication_factor", [1, 2])
def test_leaders_and_replicas_are_even_and_no_node_has_two_of_one_partition(
    nodes, replication_factor
):
    ids = list(range(10, 10 + nodes))
    placed = place_replicas(
        ids, partitions=nodes * (nodes - 1) * 2, replication_factor=replication_factor
    )
    leaders = Counter(replicas[0] for replicas in placed)
    all_replicas = Counter(node for replicas in placed for node in replicas)
    assert len(set(leaders.values())) == 1
    assert len(set(all_replicas.values())) == 1
    assert all(len(set(replicas)) == replication_factor for replicas in placed)


def test_followers_of_one_leader_are_spread_over_the_other_nodes():
    placed = place_replicas([1, 2, 3, 4], partitions=12, replication_factor=2)
    followers = {replicas[1] for replicas in placed if replicas[0] == 1}
    assert followers == {2, 3, 4}


def test_added_partitions_go_on_where_the_first_ones_stopped():
    at_once = place_replicas([1, 2, 3], partitions=7, replication_factor=3)
    added = place_replicas([1, 2, 3], partitions=4, replication_factor=3, first=3)
    assert at_once[3:] == added


@pytest.mark.parametrize("replication_factor", [2, 3])
def test_replicas_are_in_as_many_racks_as_there_are(replication_factor):
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    placed = place_replicas(
        sorted(racks), partitions=60, replication_factor=replication_factor, racks=racks
    )
    for replicas in placed:
        assert len({racks[node] for node in replicas}) == replication_factor
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders.values()) == {10}
    assert set(Counter(node for each in placed for node in each)) == set(racks)


def test_with_fewer_racks_than_replicas_each_rack_has_one_first():
    racks = {1: "a", 2: "a", 3: "a", 4: "b"}
    for replicas in place_replicas([1, 2, 3, 4], partitions=12, replication_factor=3, racks=racks):
        assert 4 in replicas
        assert len(set(replicas)) == 3


def test_racks_count_only_when_every_node_has_one():
    plain = place_replicas([1, 2, 3], partitions=6, replication_factor=2)
    some = place_replicas([1, 2, 3], partitions=6, replication_factor=2, racks={1: "a", 2: "b"})
    assert plain == some
