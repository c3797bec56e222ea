"""The short form of the long runs; `make soak NAME=...` runs them in full."""

import os
from pathlib import Path

import pytest

from tests.faults.compaction_cuts import compaction_cut_rounds
from tests.faults.kills import ACKNOWLEDGED_PER_ROUND_MIN, Round, kill_rounds
from tests.faults.power_cuts import power_cut_rounds

pytestmark = pytest.mark.slow

KILLS = 10
POWER_CUTS = 10
COMPACTION_CUTS = 10


def check(rounds: list[Round], count: int) -> None:
    assert [problem for outcome in rounds for problem in outcome.problems] == []
    assert len(rounds) == count
    assert all(outcome.acknowledged >= ACKNOWLEDGED_PER_ROUND_MIN for outcome in rounds)


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path) -> None:
    check(list(kill_rounds(tmp_path / "data", list(range(KILLS)))), KILLS)


@pytest.mark.timeout(400)
@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to mount a loop device")
def test_nothing_acknowledged_by_acks_all_is_lost_by_a_power_cut(tmp_path: Path) -> None:
    check(list(power_cut_rounds(tmp_path, list(range(POWER_CUTS)))), POWER_CUTS)


@pytest.mark.timeout(400)
@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to mount a loop device")
def test_compaction_loses_nothing_by_a_power_cut(tmp_path: Path) -> None:
    check(list(compaction_cut_rounds(tmp_path, list(range(COMPACTION_CUTS)))), COMPACTION_CUTS)
