"""A node that hears neither ZooKeeper nor other nodes is the one that is cut off."""

from millstream.cluster.contact import Contact
from millstream.cluster.lease import Lease
from millstream.testing.clock import MovableClock

SESSION = 18
OTHERS = (2, 3)


class Node:
    def __init__(self) -> None:
        self.clock = MovableClock()
        self.lease = Lease(self.clock)
        self.contact = Contact(self.clock, self.lease)
        self.zookeeper_answers()

    def zookeeper_answers(self) -> None:
        self.lease.renew(sent_at=self.clock.monotonic(), session_timeout_ms=SESSION * 1000)

    def others_answer(self, *ids: int) -> None:
        for each in ids or OTHERS:
            self.contact.heard(each)

    def is_cut_off(self, *others: int) -> bool:
        return self.contact.is_lost(others=others or OTHERS)


def test_a_node_that_hears_nobody_for_a_session_timeout_is_cut_off():
    node = Node()
    node.others_answer()
    node.clock.advance(seconds=SESSION - 1)
    assert not node.is_cut_off()
    node.clock.advance(seconds=1)
    assert node.is_cut_off()


def test_while_zookeeper_alone_is_silent_nobody_is_cut_off():
    node = Node()
    for _ in range(10):
        node.clock.advance(seconds=SESSION / 2)
        node.others_answer()
        assert not node.is_cut_off()
    # The others fall silent later.
    node.clock.advance(seconds=SESSION)
    assert node.is_cut_off()


def test_while_zookeeper_answers_a_node_is_not_cut_off():
    node = Node()
    node.others_answer()
    node.clock.advance(seconds=10 * SESSION)
    node.zookeeper_answers()
    assert not node.is_cut_off()


def test_nodes_that_had_nothing_to_say_are_not_missed():
    node = Node()
    node.clock.advance(seconds=10 * SESSION)
    assert not node.is_cut_off()
    node.others_answer()
    node.clock.advance(seconds=3 * SESSION)
    node.zookeeper_answers()
    node.clock.advance(seconds=SESSION)
    assert not node.is_cut_off()


def test_of_two_nodes_the_dead_one_may_be_the_other():
    node = Node()
    node.others_answer()
    node.clock.advance(seconds=SESSION)
    assert not node.is_cut_off(2)


def test_where_partitions_are_shared_with_one_node_the_dead_one_may_be_the_other():
    node = Node()
    node.others_answer(2)
    node.clock.advance(seconds=SESSION)
    assert not node.is_cut_off()


def test_a_node_that_was_silent_long_before_zookeeper_is_not_missed():
    node = Node()
    node.others_answer(3)
    node.clock.advance(seconds=2 * SESSION)
    node.zookeeper_answers()
    node.others_answer(2)
    node.clock.advance(seconds=SESSION)
    assert not node.is_cut_off()


def test_one_node_that_is_still_heard_is_enough():
    node = Node()
    node.others_answer()
    node.clock.advance(seconds=SESSION - 1)
    node.others_answer(3)
    node.clock.advance(seconds=2)
    assert not node.is_cut_off()


def test_without_a_session_there_is_nothing_to_give_up():
    node = Node()
    node.others_answer()
    node.lease.end()
    node.clock.advance(seconds=10 * SESSION)
    assert not node.is_cut_off()
