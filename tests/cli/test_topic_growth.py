"""What `millstream topic add-partitions` says before it asks.

Covers cli/topic_alter.py.
"""

import pytest

from millstream.cli.topic_alter import show_growth
from millstream.wire.apis.metadata import MetadataPartition, MetadataTopic


def partition(number: int, *replicas: int) -> MetadataPartition:
    return MetadataPartition(
        error_code=0,
        partition_index=number,
        leader_id=replicas[0],
        replica_nodes=list(replicas),
        isr_nodes=list(replicas),
        offline_replicas=[],
    )


def test_a_plan_counts_partitions_now_and_then_and_the_replicas_of_the_new_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Nodes list partitions in any order. The first one decides.
    some = [partition(1, 1, 2, 3), partition(0, 1, 2)]
    show_growth(MetadataTopic(error_code=0, name="orders", partitions=some), 12)
    headings, row, *rest = capsys.readouterr().out.splitlines()
    assert headings.split() == ["TOPIC", "NOW", "THEN", "NEW", "REPLICAS-OF-NEW"]
    assert row.split() == ["orders", "2", "12", "10", "2"]
    assert "Keys may go to other partitions than before" in rest[-1]
