"""Commits and rebalances through kill -9: nothing acknowledged is lost or moved back."""

from pathlib import Path

import pytest

from tests.faults.group_kills import group_kill_rounds
from tests.faults.kills import ACKNOWLEDGED_PER_ROUND_MIN

ROUNDS = 3


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_acknowledged_commit_is_lost_by_kill_9(tmp_path: Path) -> None:
    rounds = list(group_kill_rounds(tmp_path / "data", list(range(ROUNDS))))
    assert [problem for outcome in rounds for problem in outcome.problems] == []
    assert len(rounds) == ROUNDS
    assert all(outcome.acknowledged >= ACKNOWLEDGED_PER_ROUND_MIN for outcome in rounds)
