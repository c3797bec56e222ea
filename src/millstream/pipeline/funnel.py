"""How far visits go through the steps of a funnel: a plain function over plain values.

Steps count in order; pages in between do not matter. A page is the first step whose pattern it
matches, and only that one.
"""

import re
from collections.abc import Iterable, Sequence

from millstream.pipeline.globs import glob_pattern


def funnel_counts(
    visitors: Iterable[Sequence[tuple[int, str]]], steps: Sequence[str], *, gap_us: int
) -> list[int]:
    """Visits, then how many of them reached each step, in order.

    Each visitor is a list of (time, path) by time. A silence of `gap_us` ends a visit.
    """
    patterns = [re.compile(glob_pattern(step)) for step in steps]
    counts = [0] * (len(steps) + 1)
    for views in visitors:
        reached = 0
        before_us: int | None = None
        for at_us, path in views:
            if before_us is None or at_us - before_us >= gap_us:
                counts[0] += 1
                reached = 0
            before_us = at_us
            if reached < len(patterns) and _step(patterns, path) == reached + 1:
                reached += 1
                counts[reached] += 1
    return counts


def _step(patterns: Sequence[re.Pattern[str]], path: str) -> int:
    """The first step that a page is, as in the real-time visits; 0 for none."""
    return next((n for n, each in enumerate(patterns, start=1) if each.match(path)), 0)
