"""Runs simulations: `python -m tests.simulation --seed 7 [--shrink] [--mutant 'any live']`.

`--seeds 100-200` runs a range. A seed that fails is printed with what it broke; `--shrink` then
finds the faults that it needs.
"""

import argparse
import logging
import sys
from contextlib import nullcontext

from tests.simulation.mutants import MUTANTS
from tests.simulation.shrinking import failure_of, needed
from tests.simulation.world import World


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int)
    which.add_argument("--seeds", help="a range, as 100-200")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--mutant", help="how the name of a mutant begins")
    parser.add_argument("--log", action="store_true", help="show what the nodes log")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO if arguments.log else logging.CRITICAL)
    first, _, last = (arguments.seeds or str(arguments.seed)).partition("-")
    seeds = range(int(first), int(last or first) + 1)
    mutants = [each for each in MUTANTS if each.name.startswith(arguments.mutant or "\0")]
    if arguments.mutant and not mutants:
        parser.error("there are: " + ", ".join(each.name for each in MUTANTS))
    with mutants[0].applied() if mutants else nullcontext():
        return max(_run(seed, shrink=arguments.shrink) for seed in seeds)


def _run(seed: int, *, shrink: bool) -> int:
    failure = failure_of(seed)
    if failure is None:
        print(f"seed {seed}: nothing is broken")
        return 0
    print(f"seed {seed}: {failure}")
    if shrink:
        faults = World(seed).options.faults
        kept = needed(faults, lambda some: failure_of(seed, some) is not None)
        print(f"  needs {len(kept)} of {len(faults)} faults: {failure_of(seed, kept)}")
        for fault in kept:
            print(f"  {fault}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
