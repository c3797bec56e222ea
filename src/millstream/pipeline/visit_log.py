"""Visits that have not certainly ended, from the parts of them that batches bring.

A part is a stretch of views of one visitor without a silence of the gap. Parts that are nearer to
each other than that are one visit, whichever comes first, so late views count as if they had
been in time. A visit ends when the watermark has passed its last view by the gap.
"""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

# When, and where in the input, which orders views of the same moment; and the step, from 1.
Step = tuple[int, int, int, int]


@dataclass(slots=True)
class Visit:
    start_us: int
    end_us: int
    views: int
    errors: int
    # The step of the funnel that was reached by views before the watermark.
    reached: int = 0
    # Views of steps since then: one that is earlier than they are may still come.
    steps: list[Step] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """The last step of the funnel that was reached in order."""
        return _reached(self.reached, self.steps)

    def settle(self, watermark_us: int) -> None:
        """Forget steps that no view can come before any more."""
        if not self.steps:
            return
        settled = [step for step in self.steps if step[0] < watermark_us]
        if settled:
            self.reached = _reached(self.reached, settled)
            self.steps = [step for step in self.steps if step[0] >= watermark_us]

    def join(self, other: "Visit") -> None:
        # Comparisons: the functions min and max take three times as long.
        if other.start_us < self.start_us:
            self.start_us = other.start_us
        if other.end_us > self.end_us:
            self.end_us = other.end_us
        self.views += other.views
        self.errors += other.errors
        # Of two visits that a view joins, the later has only steps after the watermark.
        self.reached = max(self.reached, other.reached)
        self.steps += other.steps


def _reached(reached: int, steps: list[Step]) -> int:
    # Most visits have none that are not settled.
    if not steps:
        return reached
    for *_, step in sorted(steps):
        reached += step == reached + 1
    return reached


class VisitLog:
    def __init__(self, gap_us: int) -> None:
        self._gap_us = gap_us
        # None of the visits of a visitor are nearer to each other than the gap; by their start.
        self._of: dict[int, list[Visit]] = {}
        # When the first visit of a visitor may end, and the same in order of time. It may go on
        # since, so that is looked at when the time has come.
        self._look_at: dict[int, int] = {}
        self._looks: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._of)

    def of(self, visitor: int) -> list[Visit]:
        return self._of.get(visitor, [])

    def items(self) -> Iterable[tuple[int, list[Visit]]]:
        return self._of.items()

    def add(self, visitor: int, part: Visit) -> None:
        known = self._of.get(visitor)
        if known is None:
            self._of[visitor] = [part]
        elif len(known) == 1 and not self._are_apart(known[0], part):
            # The usual case, by itself because the driver does this for every visitor of a batch.
            known[0].join(part)
            part = known[0]
        else:
            apart = []
            for each in known:
                if self._are_apart(each, part):
                    apart.append(each)
                else:
                    part.join(each)
            apart.append(part)
            apart.sort(key=lambda visit: visit.start_us)
            self._of[visitor] = apart
        self._look(visitor, part.end_us + self._gap_us)

    def _look(self, visitor: int, at_us: int) -> None:
        before_us = self._look_at.get(visitor)
        if before_us is None or at_us < before_us:
            self._look_at[visitor] = at_us
            heapq.heappush(self._looks, (at_us, visitor))

    def add_step(self, visitor: int, step: Step) -> None:
        """Of a view that was added; a step of no visit was too late."""
        for visit in self._of.get(visitor, ()):
            if visit.start_us <= step[0] <= visit.end_us:
                visit.steps.append(step)

    def _are_apart(self, one: Visit, other: Visit) -> bool:
        return (
            one.start_us - other.end_us >= self._gap_us
            or other.start_us - one.end_us >= self._gap_us
        )

    def take_ended(self, watermark_us: int) -> list[tuple[int, Visit]]:
        ended: list[tuple[int, Visit]] = []
        while self._looks and self._looks[0][0] <= watermark_us:
            at_us, visitor = heapq.heappop(self._looks)
            if self._look_at.get(visitor) != at_us:
                # An earlier look has come in its place.
                continue
            del self._look_at[visitor]
            going_on = []
            for visit in self._of.pop(visitor, ()):
                if visit.end_us + self._gap_us <= watermark_us:
                    ended.append((visitor, visit))
                else:
                    going_on.append(visit)
            if going_on:
                self._of[visitor] = going_on
                self._look(visitor, min(each.end_us for each in going_on) + self._gap_us)
        return ended
