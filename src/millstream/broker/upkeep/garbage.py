"""Python's cycle collector, at moments that suit the node.

A full collection visits every object that is alive, with the loop stopped. Python starts one
when many objects were created, and that is just when a request with 200,000 elements is being
decoded: other clients waited 400 ms. So full collections are made here, between such requests;
those of young objects stay automatic, and take less than a millisecond.

What survives one is mostly partitions, which live long: with ten thousand of them the next full
collection would take half a second again. So survivors are frozen, and only now and then visited.
"""

import asyncio
import gc
from collections.abc import Callable
from typing import Final

_CHECK_SECONDS: Final = 5.0
# Collections of the middle generation since the last full one; each has moved some thousands
# of objects to the old generation.
_DUE_AFTER: Final = 150
# Python's 10 make collections of up to 4 ms where many objects live on.
_YOUNG_PER_MIDDLE: Final = 3
# Garbage may not grow for ever because large requests never end.
_CHECKS_PUT_OFF_MAX: Final = 12
# Frozen objects that became garbage wait for this many collections.
_FROZEN_FOR: Final = 20
_NEVER: Final = 1_000_000


def stop_automatic_full_collections() -> None:
    young, _, _ = gc.get_threshold()
    gc.set_threshold(young, _YOUNG_PER_MIDDLE, _NEVER)


async def collect_in_quiet_moments(is_busy: Callable[[], bool]) -> None:
    """Until cancelled. `is_busy`: are large requests under way?"""
    put_off = 0
    collections = 0
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        if gc.get_count()[2] < _DUE_AFTER:
            continue
        if is_busy() and put_off < _CHECKS_PUT_OFF_MAX:
            put_off += 1
            continue
        put_off = 0
        collections += 1
        if collections % _FROZEN_FOR == 0:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
