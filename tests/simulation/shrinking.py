"""Makes a failing run small: which of its faults does it need?"""

from collections.abc import Callable, Sequence

from tests.simulation.world import Fault, World


def failure_of(seed: int, faults: Sequence[Fault] | None = None) -> str | None:
    """What is broken, or None. Every exception of the code that runs is a failure."""
    try:
        World(seed, faults).run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def needed(faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool]) -> list[Fault]:
    """Faults that together still fail, none of which can be left out (ddmin)."""
    kept = list(faults)
    size = max(len(kept) // 2, 1)
    while True:
        is_smaller = False
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + size :]
            if fails(fewer):
                kept, is_smaller = fewer, True
            else:
                start += size
        if not is_smaller and size == 1:
            return kept
        if not is_smaller:
            size = max(size // 2, 1)
