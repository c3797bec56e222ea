"""A share group through kill -9: what was confirmed counts, and nothing is lost."""

from pathlib import Path

import pytest

from tests.faults.share_kills import TOTAL, share_kill_rounds

ROUNDS = 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_record_is_lost_or_delivered_again_after_kill_9(tmp_path: Path) -> None:
    seeds = list(range(ROUNDS))
    rounds = list(share_kill_rounds(tmp_path / "data", seeds, processes=3, consumers=4))
    assert [problem for outcome in rounds for problem in outcome.problems] == []
    assert len(rounds) == ROUNDS
    # Most confirmations have arrived.
    assert all(outcome.acknowledged > TOTAL // 2 for outcome in rounds)
