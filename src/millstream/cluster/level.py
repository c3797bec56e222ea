"""Which formats the nodes of a cluster use with each other: the cluster's level. Pure.

The formats are those of znodes, of requests between nodes and of records in internal topics. A
change that an older node would not understand gets a new level, and nodes write the new format only
when the cluster has reached that level. The level is in the coordination store; a version that does
not know it refuses to start. It never goes down.

Levels:

0  nodes that do not say which levels they know: every version before levels
1  the same formats; nodes say which levels they know
"""

from collections.abc import Collection, Mapping
from typing import Final

# What this version can read and write.
LOWEST: Final = 0
HIGHEST: Final = 1
# The name under which nodes say it, as one of Kafka's features (KIP-584).
FEATURE: Final = "millstream.level"


def start_problem(level: int) -> str | None:
    """Why this version cannot take part in a cluster of that level."""
    if LOWEST <= level <= HIGHEST:
        return None
    other = "a newer one" if level > HIGHEST else "one in between first"
    return (
        f"the cluster is at level {level}, and this version knows levels {LOWEST} to {HIGHEST}:"
        f" start {other}"
    )


def raised(level: int, *, known: Mapping[int, int], needed: Collection[int]) -> int | None:
    """The level to move to, once every node knows it; None if the cluster stays where it is.

    `known` is the highest level of each live node; `needed` are nodes with replicas. One of them
    that is away may come back in its older version.
    """
    if not known or not set(needed) <= known.keys():
        return None
    highest = min(*known.values(), HIGHEST)
    return highest if highest > level else None
