"""A short form of the soak `hostile`, which runs for an hour."""

from pathlib import Path

import pytest

from tests.faults.hostile import MEMORY_BYTES, hostile_rounds, is_too_slow, summary


@pytest.mark.slow
def test_hostile_clients_stop_neither_the_node_nor_a_good_client(tmp_path: Path) -> None:
    [found] = hostile_rounds(
        tmp_path, [1], quiet_seconds=3, elsewhere_seconds=3, attacked_seconds=15
    )
    assert found.problems == []
    assert found.acknowledged >= 2000
    assert found.peak_mb < MEMORY_BYTES >> 20
    assert found.resident_mb <= found.peak_mb


def test_the_summary_compares_attacks_on_the_node_with_attacks_on_another() -> None:
    def row(elsewhere: float, attacked: float, *, counts: bool = True) -> dict[str, object]:
        waits = {"quiet_p99_ms": 2.0, "elsewhere_p99_ms": elsewhere, "attacked_p99_ms": attacked}
        return {**waits, "peak_mb": 10 * attacked, "counts": counts}

    rows = [row(6.0, 12.0), row(8.0, 12.0), row(5.0, 15.0), row(1.0, 99.0, counts=False)]
    older = {"quiet_p99_ms": 1.0, "attacked_p99_ms": 50.0, "peak_mb": 500.0, "counts": True}
    assert summary([older, *rows]) == [
        "a good client's p99, median of 3 rounds: alone 2.0 ms, another node attacked 6.0 ms,"
        " attacked 12.0 ms",
        "attacked / another node attacked, by round: median 2.0, from 1.5 to 3.0",
        "peak memory: 150 MB of 512 MiB",
    ]
    assert not is_too_slow([older, *rows])
    assert is_too_slow([row(5.0, 11.0), *rows, row(5.0, 10.1)])
    assert summary([older]) == []
    assert summary([{"fault": "SIGKILL of 77", "counts": True}]) == []
