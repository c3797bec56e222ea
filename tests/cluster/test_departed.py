"""For how long clients hear of a node that left."""

from millstream.cluster.departed import SHOWN_SECONDS, Departed
from millstream.cluster.observer import ImageChange
from millstream.cluster.state import BrokerState, ClusterImage
from tests.cluster.world import HandClock


def node(number: int) -> BrokerState:
    return BrokerState(number, epoch=1)


def departed_of(*numbers: int) -> tuple[ClusterImage, HandClock, Departed]:
    image, clock = ClusterImage(), HandClock()
    image.brokers = {number: node(number) for number in numbers}
    departed = Departed(image, clock)
    departed.image_changed(ImageChange(brokers=numbers))
    return image, clock, departed


def test_a_node_that_left_is_shown_as_it_was_for_a_while():
    image, clock, departed = departed_of(1, 2)
    assert departed.nodes() == []
    image.brokers = {1: node(1)}
    departed.image_changed(ImageChange(brokers=(2,)))
    assert departed.nodes() == [node(2)]
    clock.seconds += SHOWN_SECONDS
    assert departed.nodes() == []


def test_a_node_that_is_back_is_not_shown_twice():
    image, _, departed = departed_of(1)
    image.brokers = {}
    departed.image_changed(ImageChange(brokers=(1,)))
    image.brokers = {1: node(1)}
    assert departed.nodes() == []


def test_a_node_that_nobody_saw_is_not_shown():
    _, _, departed = departed_of()
    departed.image_changed(ImageChange(brokers=(7,)))
    assert departed.nodes() == []
