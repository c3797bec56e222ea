"""One short copy with kills; the long ones are in `soak`."""

from pathlib import Path

import pytest

from tests.faults.copy_job import copy_pass, copy_passes_with_power_cuts, problems


@pytest.mark.slow
def test_a_copy_with_kills_is_exactly_once(tmp_path: Path) -> None:
    outcome = copy_pass(tmp_path / "data", seed=1, records=20_000)
    assert outcome.problems == []
    assert outcome.acknowledged == 20_000


@pytest.mark.slow
@pytest.mark.root
def test_a_copy_with_power_cuts_is_exactly_once(tmp_path: Path) -> None:
    [outcome] = copy_passes_with_power_cuts(tmp_path, [1], records=20_000)
    assert outcome.problems == []
    assert outcome.acknowledged == 20_000


def test_the_check_sees_what_is_missing_twice_or_out_of_order() -> None:
    assert problems([0, 1, 2], [0, 0, 1, 2], 3) == []
    assert "1 missing" in problems([0, 1], [0, 1], 3)[0]
    assert "1 twice" in problems([0, 1, 1, 2], [0, 1, 1, 2], 3)[0]
    assert "out of order" in problems([0, 2, 1], [0, 2, 1], 3)[0]
    assert len(problems([0, 1, 2], [0, 1], 3)) == 1
    assert len(problems([0, 1, 2], [0, 1, 2, 7], 3)) == 1
