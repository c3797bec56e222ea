"""The topics that members read, counted as they come, change and go, against a plain recount."""

import random
from dataclasses import replace
from uuid import uuid4

import pytest

from millstream.coordinators.consumer.subscriptions import (
    Difference,
    Subscription,
    Subscriptions,
    topics_hash,
)
from tests.coordinators.steps import steps
from tests.coordinators.world import image_of

NAMES = "abcdefg"


def some_names(chance: random.Random) -> tuple[str, ...]:
    return tuple(sorted(chance.sample(NAMES, chance.randrange(4))))


@pytest.mark.parametrize("seed", range(50))
def test_what_is_read_now_and_after_a_step_is_as_counted_anew(seed: int) -> None:
    chance = random.Random(seed)
    subscriptions, readers = Subscriptions(), list[Subscription]()
    image, version = image_of(a=1, b=2), 1
    for _ in range(100):
        if chance.random() < 0.1:
            image = image_of(**{name: chance.randint(1, 3) for name in chance.sample(NAMES, 3)})
            version += 1
        gone = chance.sample(readers, min(len(readers), chance.randrange(3)))
        come = [some_names(chance) for _ in range(chance.randrange(3))]
        difference = subscriptions.difference([each.names for each in gone], come)
        told = subscriptions.existing(difference, image)
        told_hash = subscriptions.topics_hash(difference, image, version)
        for each in gone:
            readers.remove(each)
            subscriptions.remove(each)
        readers += [subscriptions.add(names) for names in come]
        names = {name for each in readers for name in each.names}
        assert subscriptions.names() == names
        assert subscriptions.all_names == sum(len(each.names) for each in readers)
        assert subscriptions.different == len({each.names for each in readers})
        assert subscriptions.different_names == sum(map(len, {each.names for each in readers}))
        assert told == names & image.topics.keys()
        assert told == subscriptions.existing(Difference(), image)
        assert told_hash == topics_hash(names, image)
        assert told_hash == subscriptions.topics_hash(Difference(), image, version)
        for each in readers:
            ids = {image.topics[name].topic_id for name in each.names if name in image.topics}
            assert each.topic_ids(image, version) == ids


class CountedName(str):
    """A name that takes a step to look up, even when C does it."""

    __slots__ = ()
    __eq__ = str.__eq__

    def __hash__(self) -> int:
        return super().__hash__()


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ([], []),
        ([], [("a", "b")]),
        ([], [("x",)]),
        ([("a",)], []),
        ([("a", "b", "y")], [("a", "b")]),
        ([("a", "b", "y")], [("a",)]),
    ],
)
def test_a_step_does_not_look_at_all_topics(
    less: list[tuple[str, ...]], more: list[tuple[str, ...]]
) -> None:
    def turns(count: int) -> int:
        image = image_of(a=1, b=2)
        for number in range(count):
            topic = replace(image.topics["a"], name=CountedName(f"t{number}"), topic_id=uuid4())
            image.add_topic(topic)
        subscriptions = Subscriptions()
        subscriptions.add(("a",))
        subscriptions.add(("a", "b", "y"))
        difference = subscriptions.difference(less, more)

        def twice() -> None:
            for version in (1, 2):
                subscriptions.topics_hash(difference, image, version)

        return steps(twice)

    assert turns(1_000) == turns(10)
