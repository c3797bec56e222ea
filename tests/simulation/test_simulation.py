"""Groups, transactions and replication together under faults, in virtual time; and mutants.

`python -m tests.simulation --seed N --shrink` repeats a seed that fails.

Covers coordinators/journal.py, coordinators/, broker/coordination/, replication/.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.shrinking import failure_of, needed
from tests.simulation.world import Fault, World

SEEDS_PER_TEST = 10


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, 40, SEEDS_PER_TEST))
def test_nothing_acknowledged_is_lost_and_no_transaction_is_torn(first: int) -> None:
    endings = []
    committed = 0
    for seed in range(first, first + SEEDS_PER_TEST):
        world = World(seed)
        try:
            endings.append(world.run())
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        committed += world.checks.counts.get("committed", 0)
    # Power cuts of all that might lead are part of it, and halting is then right.
    assert endings.count("converged") > SEEDS_PER_TEST / 2
    assert committed > SEEDS_PER_TEST


def test_a_seed_decides_everything_whatever_the_hash_seed_is() -> None:
    code = (
        "import logging; logging.disable(50)\n"
        "from tests.simulation.world import World\n"
        "world = World(11); print(world.run(), world.events, world.checks.counts)"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_rule_that_is_missing_is_missed(mutant: Mutant) -> None:
    with mutant.applied():
        assert failure_of(mutant.seed) is not None


def test_a_failing_run_is_reduced_to_the_faults_that_it_needs() -> None:
    faults = [Fault(n, "kill", 1, 0, 5) for n in range(20)]
    asked: list[int] = []

    def fails(some: object) -> bool:
        asked.append(1)
        return {faults[3], faults[17]} <= set(some)  # type: ignore[call-overload]

    assert needed(faults, fails) == [faults[3], faults[17]]
    assert len(asked) < 60
