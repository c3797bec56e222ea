"""The rules of replication under faults: thousands of simulated failovers, and mutants.

A seed that fails is printed with its number; `World(seed).run()` does the same again.

Covers replication/leadership.py, replication/isr.py.
"""

import pytest

from tests.replication.simulation import mutants
from tests.replication.simulation.variant import Variant
from tests.replication.simulation.world import World

SEEDS_PER_TEST = 50


@pytest.mark.parametrize("first", range(0, 500, SEEDS_PER_TEST))
def test_nothing_committed_is_lost(first: int) -> None:
    endings = []
    for seed in range(first, first + SEEDS_PER_TEST):
        try:
            endings.append(World(seed).run())
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    # Power cuts of all who might lead are part of it, and halting is then right; but most
    # runs must go on.
    assert endings.count("converged") > SEEDS_PER_TEST / 2


def test_a_seed_is_the_whole_story() -> None:
    first, second = World(11), World(11)
    assert first.run() == second.run()
    assert first.events == second.events
    assert first.checks.truth == second.checks.truth


@pytest.mark.parametrize(
    ("mutant", "seed"),
    [
        pytest.param(mutants.CUT_TO_HIGH_WATERMARK, 1, id="cut to the high watermark"),
        pytest.param(mutants.LAST_REPLICA_STANDING, 1, id="last replica standing"),
        pytest.param(mutants.SHRINK_EARLY, 1, id="shrink before it is written"),
        pytest.param(mutants.EXPAND_WITHOUT_MAXIMAL, 2, id="expand without the maximal set"),
        pytest.param(mutants.SUSPICION_FORGOTTEN, 294, id="suspicion forgotten"),
        pytest.param(mutants.EPOCHS_NOT_TRIMMED, 30, id="epochs not trimmed"),
        pytest.param(mutants.LATE_ANSWERS_TAKEN, 12, id="late answers taken"),
        pytest.param(mutants.ANY_INCARNATION_JOINS, 105, id="any incarnation joins"),
    ],
)
def test_a_rule_that_is_missing_is_missed(mutant: Variant, seed: int) -> None:
    with pytest.raises(AssertionError):
        World(seed, mutant).run()
    assert World(seed).run() in ("converged", "halted")
