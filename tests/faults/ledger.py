"""What was sent, what was acknowledged, and whether the log agrees.

Every value is sent once by the workload and is unique, so a value at two offsets is a
duplicate, an acknowledged one that is missing is a loss, and per writer and partition the
sequence numbers must grow with the offsets.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

Place = tuple[int, int]  # partition, offset
# librdkafka knows of a repeated batch that it is there, not where.
NOWHERE = -1


@dataclass
class Ledger:
    """Everything one run knows, filled by delivery reports."""

    acknowledged: dict[str, Place] = field(default_factory=dict)
    # Failed or never answered: may be in the log or not.
    unknown: set[str] = field(default_factory=set)
    sent: int = 0
    # By writer, how many were acknowledged.
    counts: Counter[str] = field(default_factory=Counter)

    def acknowledge(self, value: str, partition: int, offset: int | None) -> None:
        """Without an offset where the client was not told."""
        assert value not in self.acknowledged, f"{value} acknowledged twice"
        self.acknowledged[value] = (partition, NOWHERE if offset is None else offset)
        self.counts[value.partition(":")[0]] += 1

    def first_offsets(self, start: dict[int, int]) -> dict[int, int]:
        """Where to begin reading: at `start`, or below it where something was acknowledged.

        A log that ended at `start` may end before it after a power cut, for its end was
        promised to nobody; what is acknowledged from then on has lower offsets. What is
        somewhere may be anywhere.
        """
        first = dict(start)
        for partition, offset in self.acknowledged.values():
            first[partition] = min(first[partition], max(offset, 0))
        return first


def value_of(writer: str, number: int) -> str:
    return f"{writer}:{number:010d}"


def problems(ledger: Ledger, found: dict[Place, str], *, writers: set[str]) -> list[str]:
    """Everything wrong with what a fresh reader found. Acknowledgements of `writers` count."""
    bad: list[str] = []
    places: dict[str, list[Place]] = defaultdict(list)
    for place, value in found.items():
        places[value].append(place)
    for value, where in places.items():
        if len(where) > 1:
            bad.append(f"duplicate: {value} at {sorted(where)}")
    for value, place in ledger.acknowledged.items():
        if value.partition(":")[0] not in writers:
            continue
        if value not in places:
            bad.append(f"lost: {value} was acknowledged at {place}")
        elif place[1] != NOWHERE and place not in places[value]:
            bad.append(f"moved: {value} was acknowledged at {place}, is at {places[value]}")
    bad += _disorder(found)
    return bad


def _disorder(found: dict[Place, str]) -> list[str]:
    bad = []
    last: dict[tuple[str, int], tuple[int, str]] = {}
    for (partition, offset), value in sorted(found.items()):
        writer, _, number = value.partition(":")
        key = (writer, partition)
        if key in last and int(number) <= last[key][0]:
            bad.append(f"disorder: {value} at {partition}/{offset} follows {last[key][1]}")
        last[key] = (int(number), value)
    return bad
