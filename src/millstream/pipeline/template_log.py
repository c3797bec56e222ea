"""Templates of messages in windows: how often each occurs, which are new, and which have vanished.

Merges the skeletons that tasks counted into templates that live as long as the pipeline. A message
is counted exactly once; which template it belongs to depends on those that came before it. The same
batches in the same order give the same templates.

New is a template whose first window comes after the first 30; vanished is one that was in nearly
all of 30 windows and then in none of 5. Only windows that have messages are counted.
"""

from dataclasses import dataclass
from heapq import nsmallest
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.lines.known_templates import KnownTemplates

NEW: Final = "new"
VANISHED: Final = "vanished"

TEMPLATES_MAX: Final = 2_000
# The number of those that are in no template because there was no room.
OTHERS: Final = -1
WATCHED_WINDOWS: Final = 30
GONE_WINDOWS: Final = 5
# Of the watched windows, to be missed.
_SEEN_MIN: Final = 27
_WATCHED_BITS: Final = (1 << WATCHED_WINDOWS) - 1
# So much more than usual at once is one event, which a few of them show.
_ALERTS_MAX: Final = 10
_FORGOTTEN_AFTER_US: Final = 7 * 86_400_000_000


@dataclass(slots=True)
class Occurrence:
    """When a template was there."""

    sample: str
    # Its first window and its last.
    first_us: int
    last_us: int
    # A bit for each of the last closed windows with messages, the last one lowest.
    seen: int = 0


@dataclass(frozen=True, slots=True)
class TemplateCount:
    template: str
    count: int
    sample: str


@dataclass(frozen=True, slots=True)
class WindowTemplates:
    window_us: int
    messages: int
    # Different ones in the window.
    templates: int
    top: list[TemplateCount]
    is_final: bool


@dataclass(frozen=True, slots=True)
class TemplateAlert:
    kind: str
    template: str
    since_us: int
    text: str


class TemplateLog:
    def __init__(self, window_us: int, top: int) -> None:
        self._window_us = window_us
        self._top = top
        self.known = KnownTemplates(TEMPLATES_MAX)
        self.occurrences: dict[int, Occurrence] = {}
        # Messages of each template in open windows.
        self.windows: dict[int, dict[int, int]] = {}
        # Closed windows with messages so far.
        self.closed_windows = 0

    def __len__(self) -> int:
        return len(self.known)

    def add(self, skeletons: pa.Table, *, closed_us: int | None) -> list[WindowTemplates]:
        """The windows that changed; those up to `closed_us` are closed, for them it is too late."""
        if closed_us is not None:
            skeletons = skeletons.filter(pc.greater(skeletons["window_us"], closed_us))
        columns = [skeletons[name].to_pylist() for name in ("window_us", "skeleton", "count")]
        samples = skeletons["sample"].to_pylist()
        rows = sorted(zip(*columns, samples, strict=True), key=lambda row: (row[1] or "", row[0]))
        numbers: dict[str, int | None] = {}
        changed = set()
        for window_us, skeleton, count, sample in rows:
            if skeleton is not None and skeleton not in numbers:
                numbers[skeleton] = self.known.find(skeleton)
            found = None if skeleton is None else numbers[skeleton]
            number = OTHERS if found is None else found
            counts = self.windows.setdefault(window_us, {})
            counts[number] = counts.get(number, 0) + count
            changed.add(window_us)
            if number != OTHERS:
                self._note(number, window_us, sample)
        return [self._window(window_us, is_final=False) for window_us in sorted(changed)]

    def _note(self, number: int, window_us: int, sample: str) -> None:
        known = self.occurrences.get(number)
        if known is None:
            self.occurrences[number] = Occurrence(sample, window_us, window_us)
        else:
            known.first_us = min(known.first_us, window_us)
            known.last_us = max(known.last_us, window_us)

    def _window(self, window_us: int, *, is_final: bool) -> WindowTemplates:
        counts = self.windows[window_us]
        # Two may have become the same in the meantime.
        by_text: dict[str, TemplateCount] = {}
        for number, count in sorted(counts.items()):
            if number != OTHERS:
                text = self.known.templates[number].text
                before = by_text.get(text)
                sample = self.occurrences[number].sample if before is None else before.sample
                count += 0 if before is None else before.count
                by_text[text] = TemplateCount(text, count, sample)
        top = nsmallest(self._top, by_text.values(), key=lambda each: (-each.count, each.template))
        return WindowTemplates(window_us, sum(counts.values()), len(by_text), top, is_final)

    def close(self, closed_us: int) -> tuple[list[WindowTemplates], list[TemplateAlert]]:
        """Windows that start up to then, and what is to be said of their templates."""
        windows: list[WindowTemplates] = []
        alerts: list[TemplateAlert] = []
        for window_us in sorted(each for each in self.windows if each <= closed_us):
            windows.append(self._window(window_us, is_final=True))
            counts = self.windows.pop(window_us)
            alerts += self._watch(window_us, counts)
            self._forget(window_us)
        return windows, alerts

    def _watch(self, window_us: int, counts: dict[int, int]) -> list[TemplateAlert]:
        new, vanished = [], []
        for number, known in self.occurrences.items():
            known.seen = (known.seen << 1 | (number in counts)) & (
                _WATCHED_BITS << GONE_WINDOWS | ((1 << GONE_WINDOWS) - 1)
            )
            text = self.known.templates[number].text
            if known.first_us == window_us and self.closed_windows >= WATCHED_WINDOWS:
                count = counts.get(number, 0)
                noun = "message" if count == 1 else "messages"
                said = f"{count} {noun}, such as: {known.sample}"
                new.append((-count, TemplateAlert(NEW, text, window_us, said)))
            elif known.last_us < window_us and self._is_gone(known):
                since_us = known.last_us + self._window_us
                seen = (known.seen >> GONE_WINDOWS).bit_count()
                said = f"in {seen} of {WATCHED_WINDOWS} windows, and in none since"
                vanished.append((-seen, TemplateAlert(VANISHED, text, since_us, said)))
        self.closed_windows += 1
        return [
            alert
            for found in (new, vanished)
            for _, alert in nsmallest(
                _ALERTS_MAX, found, key=lambda each: (each[0], each[1].template)
            )
        ]

    def _is_gone(self, known: Occurrence) -> bool:
        """Whether this very window is the last that it takes."""
        before = known.seen >> GONE_WINDOWS
        is_gone_now = known.seen & ((1 << GONE_WINDOWS) - 1) == 0 and before & 1 == 1
        return is_gone_now and before.bit_count() >= _SEEN_MIN

    def _forget(self, window_us: int) -> None:
        before_us = window_us - _FORGOTTEN_AFTER_US
        open_numbers = {number for counts in self.windows.values() for number in counts}
        for number in [n for n, each in self.occurrences.items() if each.last_us < before_us]:
            if number not in open_numbers:
                del self.occurrences[number]
                self.known.forget(number)
