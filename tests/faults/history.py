"""What clients of a cluster did and saw, and everything that must never be in it.

Every value is sent once by the workload, so offsets and values name each other. A send is
`OK` when it was acknowledged, `FAILED` when it certainly did not happen, `UNKNOWN` when the
client cannot tell. What a consumer read counts as evidence even when others failed.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

Place = tuple[int, int]  # partition, offset
NOWHERE = -1


class Outcome(Enum):
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Send:
    process: str
    value: str
    partition: int
    invoked: float
    completed: float
    outcome: Outcome
    # Of an acknowledged one; NOWHERE where the client was not told.
    offset: int = NOWHERE


@dataclass(slots=True)
class Poll:
    """What one consumer got of one partition in one call. `is_first` after it was assigned."""

    process: str
    partition: int
    records: list[tuple[int, str]]
    is_first: bool = False


@dataclass(slots=True)
class History:
    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    # A fresh reader's, from the first offset to the last, when everything is healed.
    final: dict[Place, str] = field(default_factory=dict)
    # Where the final read began: what lies before is not this history's.
    first_offsets: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def anomalies(history: History) -> list[Anomaly]:
    found: list[Anomaly] = list(_acknowledged_somewhere(history))
    for check in (
        _inconsistent_offsets,
        _duplicates,
        _lost_writes,
        _phantoms,
        _aborted_reads,
        _sends_out_of_order,
        _realtime_reorders,
        _polls_out_of_order,
    ):
        found += check(history)
    return found


def _acknowledged_somewhere(history: History) -> Iterator[Anomaly]:
    """librdkafka knows of a repeated batch that it is there, not where: then the end says it."""
    at_the_end = {value: offset for (_, offset), value in history.final.items()}
    for send in history.sends:
        if send.outcome is not Outcome.OK or send.offset != NOWHERE:
            continue
        send.offset = at_the_end.get(send.value, NOWHERE)
        if send.offset == NOWHERE:
            send.outcome = Outcome.UNKNOWN
            yield Anomaly("lost-write", f"{send.value} was acknowledged and is gone")


def _observed(history: History) -> Iterator[tuple[Place, str, str]]:
    """Every value at a place, and who says so."""
    for send in history.sends:
        if send.outcome is Outcome.OK:
            yield (send.partition, send.offset), send.value, f"acknowledged to {send.process}"
    for poll in history.polls:
        for offset, value in poll.records:
            yield (poll.partition, offset), value, f"read by {poll.process}"
    for place, value in history.final.items():
        yield place, value, "there at the end"


def _inconsistent_offsets(history: History) -> Iterator[Anomaly]:
    """One place, two values: records were lost, or shown before they were committed."""
    seen: dict[Place, tuple[str, str]] = {}
    for place, value, who in _observed(history):
        known = seen.setdefault(place, (value, who))
        if known[0] != value:
            yield Anomaly("inconsistent-offset", f"{place}: {known[0]} {known[1]}, {value} {who}")


def _duplicates(history: History) -> Iterator[Anomaly]:
    places: dict[str, set[Place]] = defaultdict(set)
    for place, value, _ in _observed(history):
        places[value].add(place)
    for value, where in places.items():
        if len(where) > 1:
            yield Anomaly("duplicate", f"{value} at {sorted(where)}")


def _lost_writes(history: History) -> Iterator[Anomaly]:
    at_the_end = set(history.final.values())
    for place, value, who in _observed(history):
        if place[1] >= history.first_offsets.get(place[0], 0) and value not in at_the_end:
            yield Anomaly("lost-write", f"{value} at {place} was {who} and is gone")


def _phantoms(history: History) -> Iterator[Anomaly]:
    sent = {send.value for send in history.sends}
    for place, value, who in _observed(history):
        if place[1] >= history.first_offsets.get(place[0], 0) and value not in sent:
            yield Anomaly("phantom", f"{value} at {place} was sent by nobody, {who}")


def _aborted_reads(history: History) -> Iterator[Anomaly]:
    failed = {send.value for send in history.sends if send.outcome is Outcome.FAILED}
    for place, value, who in _observed(history):
        if value in failed:
            yield Anomaly("aborted-read", f"{value} at {place} was refused, and {who}")


def _sends_out_of_order(history: History) -> Iterator[Anomaly]:
    last: dict[tuple[str, int], Send] = {}
    for send in sorted(history.sends, key=lambda one: one.invoked):
        if send.outcome is not Outcome.OK:
            continue
        before = last.get((send.process, send.partition))
        if before is not None and send.offset <= before.offset:
            yield Anomaly(
                "nonmonotonic-send",
                f"{send.value} at {send.offset} after {before.value} at {before.offset}",
            )
        last[send.process, send.partition] = send


def _realtime_reorders(history: History) -> Iterator[Anomaly]:
    """Acknowledged before another was sent, and yet behind it."""
    by_partition: dict[int, list[Send]] = defaultdict(list)
    for send in history.sends:
        if send.outcome is Outcome.OK:
            by_partition[send.partition].append(send)
    for sends in by_partition.values():
        by_completion = sorted(sends, key=lambda one: one.completed)
        done = 0
        highest: Send | None = None
        for send in sorted(sends, key=lambda one: one.invoked):
            while done < len(by_completion) and by_completion[done].completed < send.invoked:
                candidate = by_completion[done]
                if highest is None or candidate.offset > highest.offset:
                    highest = candidate
                done += 1
            if highest is not None and send.offset < highest.offset:
                yield Anomaly(
                    "realtime-reorder",
                    f"{send.value} at {send.offset} was sent after {highest.value} at"
                    f" {highest.offset} was acknowledged",
                )


def _polls_out_of_order(history: History) -> Iterator[Anomaly]:
    existing: dict[int, set[int]] = defaultdict(set)
    for partition, offset in history.final:
        existing[partition].add(offset)
    position: dict[tuple[str, int], int] = {}
    for poll in history.polls:
        key = (poll.process, poll.partition)
        offsets = [offset for offset, _ in poll.records]
        if not poll.is_first and key in position:
            offsets.insert(0, position[key])
        for before, after in pairwise(offsets):
            if after <= before:
                yield Anomaly("nonmonotonic-poll", f"{key} went from {before} to {after}")
            elif any(missed in existing[poll.partition] for missed in range(before + 1, after)):
                yield Anomaly("poll-skip", f"{key} went from {before} to {after}")
        if offsets:
            position[key] = offsets[-1]
