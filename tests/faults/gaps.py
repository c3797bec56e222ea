"""How long partitions were without a leader in the rounds of a long run, from its results.

What was measured is the longest time in which a partition that was written to all along got
no acknowledgement: the time without a leader, and what clients need to find the new one.
"""

import re
from collections.abc import Mapping, Sequence

from millstream.config import BROKER_OPTIONS

_GAP = re.compile(r"longest time without an acknowledgement (\d+) ms")
_LED = re.compile(r"leader of \[\d")


def summary(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Lines for a person; none where no round has measured it."""
    faults = [str(row["fault"]) for row in rows if row["counts"]]
    groups = {
        "all": faults,
        "a leader was hit": [fault for fault in faults if _LED.search(fault)],
        "the controller was hit": [fault for fault in faults if "the controller" in fault],
    }
    found = {name: gaps for name, chosen in groups.items() if (gaps := _gaps_ms(chosen))}
    if not found:
        return []
    session_ms = BROKER_OPTIONS["zookeeper.session.timeout.ms"].default
    return [
        f"longest time without an acknowledgement, per round (session timeout {session_ms} ms):",
        *(
            f"  {name}: {len(gaps)} rounds, p50 {percentile(gaps, 50)} ms, "
            f"p99 {percentile(gaps, 99)} ms, longest {gaps[-1]} ms"
            for name, gaps in found.items()
        ),
    ]


def percentile(ordered: Sequence[int], percent: int) -> int:
    """The smallest of the ordered values that `percent` of them do not exceed."""
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)]


def _gaps_ms(faults: Sequence[str]) -> list[int]:
    return sorted(int(found[1]) for fault in faults if (found := _GAP.search(fault)))
