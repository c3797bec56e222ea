"""Patterns of topic names in the consumer protocol: RE2's syntax, as in Kafka.

A pattern matches whole names. One that is not valid is INVALID_REGULAR_EXPRESSION.

A hostile pattern takes a quarter of a millisecond for a long name, so matching is not part of a
decision. `TopicMatches` keeps what was matched: when topics change, only new names are matched. It
knows no threads: it takes one call at a time.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any, Final

from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass
from millstream.patterns import WholePattern

# How many compiled patterns are kept.
_KEPT_MAX: Final = 32
# Names that are matched in one step: another client may have to wait for that.
STEP_NAMES_MAX: Final = 200
# Of how many patterns the matches are kept, and how many names these have together.
_MATCHES_KEPT_MAX: Final = 1_000
_NAMES_KEPT_MAX: Final = 1_000_000

# Goes through names, and may pause between them.
Each = Callable[[Iterable[Any]], Iterable[Any]]


class TopicPattern(WholePattern):
    """Matches whole names of topics."""

    __slots__ = ()

    def __init__(self, text: str) -> None:
        """Raises KafkaError if the pattern is invalid."""
        try:
            super().__init__(text)
        except ValueError as problem:
            raise KafkaError(
                KafkaCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{text[:100]}` is not a valid regular expression: "
                f"{problem}.",
            ) from None


@lru_cache(maxsize=_KEPT_MAX)
def compile_pattern(text: str) -> TopicPattern:
    """Members of a group send the same pattern again and again."""
    return TopicPattern(text)


@dataclass(frozen=True, slots=True)
class PatternMatch:
    """The topics that a pattern matches and that the member who asked may describe, by what was
    true in these versions of topics and permissions."""

    pattern: str
    topics: tuple[str, ...]
    topics_version: int
    visible_version: int


@dataclass(slots=True)
class _Kept:
    # Sorted.
    names: list[str]
    # The number of the last name that was matched.
    last_number: int


@dataclass(slots=True)
class Matching:
    """One pattern, while its names are matched."""

    pattern: str
    compiled: TopicPattern
    topics_version: int
    last_number: int
    names_left: list[str]
    # Each of them is sorted.
    runs: list[list[str]] = field(default_factory=list)

    def step(self, each: Each) -> bool:
        """Match the next names; False when there are no more."""
        names = self.names_left[-STEP_NAMES_MAX:]
        del self.names_left[-STEP_NAMES_MAX:]
        found = sorted(name for name in each(names) if self.compiled.matches(name))
        if found:
            self.runs.append(found)
        return bool(self.names_left)


class TopicMatches:
    def __init__(self) -> None:
        self._topics_version = -1
        # Names of topics are numbered as they appear; the newest are last.
        self._numbers: dict[str, int] = {}
        self._last_number = 0
        # By pattern; those that were asked for last are last.
        self._kept: dict[str, _Kept] = {}
        self._names_kept = 0

    def begin(
        self, pattern: str, topics_version: int, topics: Sequence[str], each: Each
    ) -> Matching:
        """Raises KafkaError if the pattern is invalid."""
        compiled = compile_pattern(pattern)
        # Another client may have brought a newer version meanwhile.
        if topics_version > self._topics_version:
            self._update(topics, each)
            self._topics_version = topics_version
        kept = self._kept.get(pattern) or _Kept([], 0)
        numbers = self._numbers
        new: list[str] = []
        for name in each(reversed(numbers)):
            if numbers[name] <= kept.last_number:
                break
            new.append(name)
        # A name that was deleted and created again is a new one.
        still = [name for name in each(kept.names) if numbers.get(name, 0) in _upto(kept)]
        version = self._topics_version
        return Matching(pattern, compiled, version, self._last_number, new, [still])

    def _update(self, topics: Sequence[str], each: Each) -> None:
        present = {name for name in each(topics)}  # noqa: C416  # with pauses
        gone = [name for name in each(self._numbers) if name not in present]
        for name in gone:
            del self._numbers[name]
        for name in each(topics):
            if name not in self._numbers:
                self._last_number += 1
                self._numbers[name] = self._last_number

    def finish(self, matching: Matching, each: Each) -> list[str]:
        """The names that match, sorted."""
        names = list(each(heapq.merge(*matching.runs)))
        self._forget(matching.pattern)
        self._kept[matching.pattern] = _Kept(names, matching.last_number)
        self._names_kept += len(names)
        while len(self._kept) > _MATCHES_KEPT_MAX or self._names_kept > _NAMES_KEPT_MAX:
            self._forget(next(iter(self._kept)))
        return names

    def _forget(self, pattern: str) -> None:
        kept = self._kept.pop(pattern, None)
        if kept is not None:
            self._names_kept -= len(kept.names)


def _upto(kept: _Kept) -> range:
    return range(1, kept.last_number + 1)
