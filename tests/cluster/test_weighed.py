from hypothesis import given
from hypothesis import strategies as st

from millstream.cluster.weighed import Weighed
from millstream.model import TopicPartition

PLACES = [TopicPartition(topic, number) for topic in "abc" for number in range(4)]


@given(
    weights=st.dictionaries(st.sampled_from(PLACES), st.integers(0, 8)),
    gone=st.sets(st.sampled_from(PLACES)),
    stuck=st.sets(st.sampled_from(PLACES)),
    ranks=st.fixed_dictionaries({topic: st.integers(-2, 2) for topic in "abc"}),
    gap=st.integers(0, 12),
)
def test_the_nearest_is_that_of_a_look_at_all(
    weights: dict[TopicPartition, int],
    gone: set[TopicPartition],
    stuck: set[TopicPartition],
    ranks: dict[str, int],
    gap: int,
) -> None:
    weighed = Weighed()
    for where, weight in weights.items():
        weighed.add(where, weight)
    for where in gone & weights.keys():
        weighed.remove(where, weights[where])
    fitting = [
        where
        for where, weight in weights.items()
        if where not in gone and where not in stuck and weight < gap
    ]

    def order(where: TopicPartition) -> tuple[float, int, TopicPartition]:
        return abs(gap / 2 - weights[where]), ranks[where.topic], where

    found = weighed.nearest(
        gap / 2, below=gap, may_move=lambda where: where not in stuck, rank=ranks.__getitem__
    )
    assert found == (min(fitting, key=order) if fitting else None)
