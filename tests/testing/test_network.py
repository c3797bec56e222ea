import pytest

from millstream.testing.network import largest, sides_of, unreached


def test_nodes_that_are_not_named_are_a_side() -> None:
    assert sides_of([{1}], [1, 2, 3]) == [{1}, {2, 3}]
    assert sides_of([{1}, {2, 3}], [1, 2, 3]) == [{1}, {2, 3}]


@pytest.mark.parametrize("sides", [[{1}, {1, 2}], [{4}]])
def test_a_node_is_on_one_side(sides: list[set[int]]) -> None:
    with pytest.raises(ValueError, match="is on one side at most"):
        sides_of(sides, [1, 2, 3])


def test_who_does_not_reach_whom() -> None:
    assert unreached([{1}, {2, 3}]) == {1: {2, 3}, 2: {1}, 3: {1}}
    assert largest([{1}, {2, 3}]) == {2, 3}
    assert largest([{1}, {2}]) == {1}
