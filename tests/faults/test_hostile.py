"""A short form of the soak `hostile`, which runs for an hour."""

from pathlib import Path

import pytest

from tests.faults.hostile import MEMORY_BYTES, hostile_rounds


@pytest.mark.slow
def test_hostile_clients_stop_neither_the_node_nor_a_good_client(tmp_path: Path) -> None:
    [found] = hostile_rounds(
        tmp_path, [1], quiet_seconds=3, elsewhere_seconds=3, attacked_seconds=15
    )
    assert found.problems == []
    assert found.acknowledged >= 2000
    assert found.peak_mb < MEMORY_BYTES >> 20
