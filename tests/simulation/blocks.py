"""The long run: blocks of a hundred seeds each, for `tests.faults.soak`."""

import gc
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.faults.kills import Round
from tests.simulation.world import World

FIRST_BLOCK = 20_000
SEEDS_PER_BLOCK = 100


def simulation_blocks(folder: Path, blocks: list[int]) -> Iterator[Round]:
    # A seed that fails can be repeated with its log.
    logging.disable(logging.CRITICAL)
    # A run leaves little garbage: with the usual threshold, a tenth of the time goes into looking.
    gc.set_threshold(50_000, 20, 20)
    for block in blocks:
        first = (block - FIRST_BLOCK) * SEEDS_PER_BLOCK
        yield _block(block, range(first, first + SEEDS_PER_BLOCK))


def _block(block: int, seeds: range) -> Round:
    """`acknowledged` are commits of offsets and ends of transactions."""
    faults: Counter[str] = Counter()
    problems: list[str] = []
    acknowledged = 0
    for seed in seeds:
        world = World(seed)
        faults.update(fault.kind for fault in world.options.faults)
        try:
            faults[world.run()] += 1
        except Exception as error:
            problems.append(f"seed {seed}: {type(error).__name__}: {error}")
        counts = world.checks.counts
        acknowledged += sum(
            counts.get(what, 0) for what in ("offsets committed", "committed", "aborted")
        )
    told = ", ".join(f"{count} {what}" for what, count in sorted(faults.items()))
    return Round(block, acknowledged, f"seeds {seeds[0]}-{seeds[-1]}: {told}", problems)
