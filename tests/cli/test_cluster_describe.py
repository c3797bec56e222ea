"""`millstream cluster describe`."""

import json

import pytest

from millstream.cli.cluster_describe import PlacedPartition, placed_partitions, summed_up
from millstream.wire.apis.metadata import MetadataPartition, MetadataResponse, MetadataTopic
from tests.support.command_line import run_millstream


@pytest.mark.parametrize(
    ("leader", "in_sync", "problem"),
    [
        (1, (1, 2, 3), None),
        (2, (2, 1, 3), "not led by its preferred replica"),
        (1, (1, 3), "under-replicated"),
        (-1, (), "no leader"),
    ],
)
def test_a_partition_has_its_worst_problem(
    leader: int, in_sync: tuple[int, ...], problem: str | None
) -> None:
    assert PlacedPartition("t", 0, leader, (1, 2, 3), in_sync).problem == problem


def test_a_replica_that_a_move_adds_is_not_missing() -> None:
    moving = PlacedPartition("t", 0, 1, (4, 1, 2), (1, 2), adding=(4,), removing=(1,))
    assert moving.problem == "moving"
    lagging = PlacedPartition("t", 0, 1, (4, 1, 2), (1,), adding=(4,), removing=(1,))
    assert lagging.problem == "under-replicated"


def test_the_partitions_of_users_come_first() -> None:
    place = MetadataPartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
    names = ["__consumer_offsets", "orders", "__mine"]
    metadata = MetadataResponse(
        brokers=[],
        topics=[MetadataTopic(error_code=0, name=name, partitions=[place]) for name in names],
    )
    found = [one.topic for one in placed_partitions(metadata, {})]
    assert found == ["__mine", "orders", "__consumer_offsets"]


def test_problems_of_internal_topics_are_summed_up() -> None:
    wrong = [PlacedPartition("__consumer_offsets", n, 1, (1, 2), (1,)) for n in range(50)]
    wrong.append(PlacedPartition("orders", 0, -1, (1, 2), ()))
    assert list(summed_up(wrong)) == [
        "__consumer_offsets: 50 partitions under-replicated (--all lists them)"
    ]


@pytest.mark.slow
def test_nodes_and_partitions_are_told(bootstrap: str) -> None:
    run_millstream("topic", "create", "seen", "-p", "2", bootstrap=bootstrap)
    told = run_millstream("cluster", "describe", bootstrap=bootstrap)
    assert told.exit_code == 0, told.errors
    assert "partitions are healthy" in told.output
    assert bootstrap in told.output
    found = json.loads(run_millstream("cluster", "describe", "--json", bootstrap=bootstrap).output)
    assert [node["address"] for node in found["nodes"]] == [bootstrap]
    assert found["partitions"] >= 2
    assert found["problems"] == []
