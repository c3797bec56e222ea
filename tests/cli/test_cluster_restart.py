import pytest

from millstream.cli.cluster_restart import filled, out_of_sync, restart_order, waited_for
from millstream.cli.failure import CommandFailed
from tests.cli.cluster_views import broker, partition, view


def test_the_controller_is_restarted_last() -> None:
    assert [node.broker_id for node in restart_order(view(), ())] == [2, 3, 1]
    assert [node.broker_id for node in restart_order(view(), (1, 2))] == [2, 1]
    with pytest.raises(CommandFailed, match="node 7 is not alive"):
        restart_order(view(), (7,))


def test_a_command_is_filled_word_by_word() -> None:
    words = filled("ssh {host} 'restart node-{node} {port}'", broker(2))
    assert words == ["ssh", "h2", "restart node-2 9092"]


def test_what_is_not_in_sync_delays_a_restart() -> None:
    lagging = [partition(1, in_sync=(1, 2)), partition(2, leader=-1)]
    assert out_of_sync(view(partition(0), *lagging)) == lagging


def test_a_restart_says_what_it_waits_for() -> None:
    lagging = partition(1, in_sync=(1, 2))
    assert waited_for(view(lagging), broker(3)) == "node 3 is alive, 1 partition not in sync"
    dead = view(lagging, partition(2, in_sync=(1, 2)), nodes=(1, 2))
    assert waited_for(dead, broker(3)) == "node 3 is not alive, 2 partitions not in sync"
