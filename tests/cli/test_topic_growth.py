"""What `millstream topic add-partitions` says before it asks.

Covers cli/topic_alter.py.
"""

from typing import NoReturn

import pytest

from millstream.cli.failure import CommandFailed
from millstream.cli.topic_alter import replicas_of_new, show_growth
from millstream.client.blocking import Address
from millstream.wire.apis.metadata import MetadataTopic
from tests.cli.cluster_views import FakeCluster, partition, view


def topic_of(cluster: FakeCluster) -> MetadataTopic:
    [found] = cluster.metadata().topics
    return found


def test_a_plan_counts_partitions_now_and_then_and_the_replicas_of_the_new_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = topic_of(FakeCluster(view(partition(0), partition(1))))
    show_growth(topic, 12, 3)
    headings, row, *rest = capsys.readouterr().out.splitlines()
    assert headings.split() == ["TOPIC", "NOW", "THEN", "NEW", "REPLICAS-OF-NEW"]
    assert row.split() == ["t", "2", "12", "10", "3"]
    assert "Keys may go to other partitions than before" in rest[-1]


def test_new_partitions_get_as_many_replicas_as_the_first_one_has() -> None:
    # Nodes list partitions in any order.
    cluster = FakeCluster(view(partition(1, replicas=(1, 2, 3)), partition(0, replicas=(1, 2))))
    assert replicas_of_new(cluster, topic_of(cluster)) == 2


def test_new_partitions_get_none_for_those_that_a_move_is_about_to_remove() -> None:
    moving = partition(0, replicas=(4, 1, 2), adding=(4,), removing=(2,))
    cluster = FakeCluster(view(moving, partition(1)))
    assert replicas_of_new(cluster, topic_of(cluster)) == 2


def test_who_may_not_see_moves_extends_a_topic_as_well() -> None:
    class WithoutPermission(FakeCluster):
        def ask(self, node: Address, request: object, version: int | None = None) -> NoReturn:
            raise CommandFailed("reassignments: CLUSTER_AUTHORIZATION_FAILED")

    cluster = WithoutPermission(view(partition(0)))
    assert replicas_of_new(cluster, topic_of(cluster)) == 3
