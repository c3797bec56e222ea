from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.cluster.rebalancing import CannotPlan, Placed, balanced, evacuated
from millstream.model import TopicPartition


def placed(*rows: tuple[tuple[int, ...], int]) -> list[Placed]:
    return [Placed(TopicPartition("t", n), *row) for n, row in enumerate(rows)]


def after(partitions, moves) -> list[Placed]:
    new = {move.where: move.after for move in moves}
    return [Placed(p.where, new.get(p.where, p.replicas), p.size_bytes) for p in partitions]


def bytes_of(partitions) -> Counter:
    found = Counter()
    for one in partitions:
        for node in one.replicas:
            found[node] += one.size_bytes
    return found


def leaders_of(partitions) -> Counter:
    return Counter(one.replicas[0] for one in partitions)


def counts_of(partitions, topic: str) -> Counter:
    return Counter(node for one in partitions if one.where.topic == topic for node in one.replicas)


def with_small_ones(*topics: tuple[str, int, int]) -> list[Placed]:
    """Topics with this many partitions of a size, each on the nodes 1, 2 and 3."""
    orders = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    return [
        Placed(TopicPartition(topic, number), orders[number % 3], size_bytes)
        for topic, count, size_bytes in topics
        for number in range(count)
    ]


def is_even(counts: Counter, nodes, *, within: int = 1) -> bool:
    found = [counts[node] for node in nodes]
    return max(found) - min(found) <= within


def racks(*nodes: int, **named: str) -> dict[int, str | None]:
    return {node: named.get(f"n{node}") for node in nodes}


def test_a_new_node_gets_its_share_of_bytes_and_leaders():
    old = placed(*[((1, 2, 3), 100), ((2, 3, 1), 100), ((3, 1, 2), 100)] * 4)
    moves = balanced(old, racks(1, 2, 3, 4))
    new = after(old, moves)
    assert set(bytes_of(new).values()) == {900}
    assert set(leaders_of(new).values()) == {3}
    assert sum(len(move.added) for move in moves) == 9


def test_what_is_balanced_stays():
    old = placed(((1, 2), 100), ((2, 3), 100), ((3, 1), 100))
    assert balanced(old, racks(1, 2, 3)) == []


def test_bytes_count_more_than_the_number_of_replicas():
    old = placed(((1,), 1000), ((1,), 10), ((1,), 10), ((2,), 1000))
    moves = balanced(old, racks(1, 2))
    assert all(move.size_bytes < 1000 for move in moves)


def test_empty_partitions_are_spread_too():
    old = placed(*[((1,), 0)] * 6)
    new = after(old, balanced(old, racks(1, 2, 3)))
    assert leaders_of(new) == {1: 2, 2: 2, 3: 2}


def test_a_new_node_gets_its_share_of_small_partitions_and_all_leaders():
    old = with_small_ones(("__consumer_offsets", 50, 90), ("clicks", 12, 1_000_000), ("new", 8, 0))
    new = after(old, balanced(old, racks(1, 2, 3, 4)))
    assert bytes_of(new)[4] >= 0.95 * 9_000_000
    assert is_even(counts_of(new, "__consumer_offsets"), {1, 2, 3, 4}, within=2)
    assert is_even(counts_of(new, "new"), {1, 2, 3, 4}, within=2)
    assert is_even(leaders_of(new), {1, 2, 3, 4})
    large = [one for one in new if one.where.topic == "clicks"]
    assert is_even(leaders_of(large), {1, 2, 3, 4}), "not only of those that nobody uses"


def test_leaders_of_large_partitions_are_exchanged_for_those_of_small_ones():
    old = placed(*[((1, 2), 100)] * 4, *[((2, 1), 0)] * 4)
    moves = balanced(old, racks(1, 2))
    new = after(old, moves)
    assert leaders_of(new) == {1: 4, 2: 4}
    assert leaders_of([one for one in new if one.size_bytes]) == {1: 2, 2: 2}
    assert sum(move.copied_bytes for move in moves) == 0


def test_small_partitions_respect_racks():
    old = with_small_ones(("__consumer_offsets", 50, 0))
    named = {"n1": "a", "n2": "b", "n3": "c", "n4": "a"}
    new = after(old, balanced(old, racks(1, 2, 3, 4, **named)))
    assert counts_of(new, "__consumer_offsets") == {1: 25, 2: 50, 3: 50, 4: 25}
    assert is_even(leaders_of(new), {1, 2, 3, 4})


def test_leaders_are_spread_without_copying():
    old = placed(*[((1, 2, 3), 100)] * 6)
    moves = balanced(old, racks(1, 2, 3))
    assert leaders_of(after(old, moves)) == {1: 2, 2: 2, 3: 2}
    assert [move.copied_bytes for move in moves] == [0] * len(moves)


def test_a_partition_keeps_its_racks():
    named = {"n1": "a", "n2": "b", "n3": "a"}
    old = placed(*[((1, 2), 100)] * 4)
    moves = balanced(old, racks(1, 2, 3, **named))
    assert all(2 in move.after for move in moves), "node 2 is alone in its rack"
    assert bytes_of(after(old, moves)) == {1: 200, 2: 400, 3: 200}


def test_a_partition_of_a_dead_node_is_left_alone():
    old = placed(((1, 9), 100), ((1, 9), 100))
    assert balanced(old, racks(1, 2)) == []


def test_a_leaving_node_has_nothing_left():
    old = placed(*[((1, 2, 3), 100), ((4, 1, 2), 50), ((3, 4, 1), 70)] * 3)
    new = after(old, evacuated(old, racks(1, 2, 3, 4), {4}))
    assert 4 not in bytes_of(new)
    assert all(len(set(one.replicas)) == 3 for one in new)


def test_a_dead_node_can_be_left():
    old = placed(((1, 9), 100))
    [move] = evacuated(old, racks(1, 2), {9})
    assert set(move.after) == {1, 2}


def test_too_few_nodes_are_said():
    with pytest.raises(CannotPlan, match="t-0 has 3 replicas, and only 2 nodes stay"):
        evacuated(placed(((1, 2, 3), 100)), racks(1, 2, 3), {3})


def test_a_leaving_replica_goes_to_another_rack_than_the_others():
    named = {"n1": "a", "n2": "b", "n3": "a", "n4": "b"}
    [move] = evacuated(placed(((1, 2), 100)), racks(1, 2, 3, 4, **named), {2})
    assert move.after[1:] == (4,) or move.after[0] == 4


@settings(deadline=None)
@given(st.data())
def test_any_plan_is_legal_and_makes_nothing_worse(data):
    nodes = {node: data.draw(st.sampled_from("ab")) for node in range(data.draw(st.integers(2, 5)))}
    rows = data.draw(
        st.lists(
            st.tuples(st.permutations(sorted(nodes)), st.integers(1, 2), st.integers(0, 1000)),
            max_size=20,
        )
    )
    old = placed(*[(tuple(order[:count]), size) for order, count, size in rows])
    new = after(old, balanced(old, nodes))

    for before, moved in zip(old, new, strict=True):
        assert len(set(moved.replicas)) == len(before.replicas)
        assert len({nodes[n] for n in moved.replicas}) >= len({nodes[n] for n in before.replicas})
    leads = leaders_of(new)
    if old and all(len(one.replicas) == len(nodes) for one in new):
        assert max(leads[node] for node in nodes) - min(leads[node] for node in nodes) <= 1


@st.composite
def clusters(draw, rack_names: str):
    nodes = {n: draw(st.sampled_from(rack_names)) for n in range(draw(st.integers(2, 6)))}
    # New nodes have nothing yet.
    used = draw(st.integers(1, len(nodes)))
    rows = draw(
        st.lists(
            st.tuples(
                st.permutations(range(used)),
                st.integers(1, 3),
                st.one_of(st.just(0), st.integers(0, 50), st.integers(1_000, 100_000)),
            ),
            max_size=60,
        )
    )
    return nodes, placed(*[(tuple(order[:count]), size) for order, count, size in rows])


@settings(deadline=None)
@given(clusters("a"))
def test_any_plan_spreads_bytes_small_partitions_and_leaders(cluster):
    nodes, old = cluster
    new = after(old, balanced(old, nodes))
    average = sum(one.size_bytes for one in new) / max(len(new), 1)
    small = [one for one in new if one.size_bytes <= average / 10]
    assert is_even(Counter(node for one in small for node in one.replicas), nodes)
    largest = max((one.size_bytes for one in new), default=0)
    total = bytes_of(new).total()
    tolerance = 0.05 * total / len(nodes)
    # Nodes cannot be more equal than the partitions are small.
    assert is_even(bytes_of(new), nodes, within=max(tolerance, largest, bytes_of(small).total()))
    if all(len(one.replicas) == len(nodes) for one in new):
        assert is_even(leaders_of(new), nodes)


@settings(deadline=None)
@given(clusters("ab"))
def test_a_second_plan_is_empty(cluster):
    nodes, old = cluster
    new = after(old, balanced(old, nodes))
    assert balanced(new, nodes) == []


@settings(deadline=None)
@given(clusters("ab"), st.randoms(use_true_random=False))
def test_a_plan_does_not_depend_on_the_order_of_what_it_is_given(cluster, random):
    nodes, old = cluster
    shuffled = random.sample(old, len(old))
    mixed = dict(random.sample(sorted(nodes.items()), len(nodes)))
    assert balanced(shuffled, mixed) == balanced(old, nodes)
