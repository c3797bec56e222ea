"""`millstream cluster describe`."""

import json

import pytest

from millstream.cli.cluster_view import PlacedPartition
from tests.support.command_line import run_millstream


@pytest.mark.parametrize(
    ("leader", "in_sync", "problem"),
    [
        (1, (1, 2, 3), None),
        (2, (2, 1, 3), "not led by its first replica"),
        (1, (1, 3), "under-replicated"),
        (-1, (), "no leader"),
    ],
)
def test_a_partition_has_its_worst_problem(
    leader: int, in_sync: tuple[int, ...], problem: str | None
) -> None:
    assert PlacedPartition("t", 0, leader, (1, 2, 3), in_sync).problem == problem


@pytest.mark.slow
def test_nodes_and_partitions_are_told(bootstrap: str) -> None:
    run_millstream("topic", "create", "seen", "-p", "2", bootstrap=bootstrap)
    told = run_millstream("cluster", "describe", bootstrap=bootstrap)
    assert told.exit_code == 0, told.errors
    assert "partitions are as they should be" in told.output
    assert bootstrap in told.output
    found = json.loads(run_millstream("cluster", "describe", "--json", bootstrap=bootstrap).output)
    assert [node["address"] for node in found["nodes"]] == [bootstrap]
    assert found["partitions"] >= 2
    assert found["problems"] == []
