"""Templates of messages, such as `connected to <*> after <*> ms`, discovered as messages come.

This is Drain (He, Zhu, Zheng and Lyu, 2017): the number of a message's words, its first and its
second lead to a few templates; it belongs to the one with which it has most words in common,
which then has `<*>` where they differ, or it becomes a template. Numbers, addresses and
identifiers are replaced before. The same messages in the same order give the same templates.

Memory is bounded: there are at most `templates_max` templates, and a message that fits none of
them is then counted as one of the others. `_drain.pyx` has the loop, `_drain_pure` its twin.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

TEMPLATES_MAX: Final = 10_000
_SAMPLE_CHARACTERS: Final = 300


class Miner(Protocol):
    """Numbers templates from 0 in the order in which they are found."""

    def add(self, messages: pa.StringArray) -> NDArray[np.int32]: ...
    def texts(self, start: int = 0) -> list[str]: ...


class Implementation(Protocol):
    NAME: str

    def Miner(self, templates_max: int) -> Miner: ...
    def skeleton_hashes(self, messages: pa.StringArray) -> NDArray[np.uint64]: ...

    def group_hashes(
        self, hashes: NDArray[np.uint64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.int32]]: ...


def _compiled() -> Implementation | None:
    if not TYPE_CHECKING:
        try:
            from millstream.lines import _drain
        except ImportError:
            return None
    else:
        from millstream.lines import _drain
    return cast(Implementation, _drain)


def pure() -> Implementation:
    from millstream.lines import _drain_pure

    return cast(Implementation, _drain_pure)


COMPILED: Final = _compiled()
IMPLEMENTATION: Final = COMPILED or pure()


@dataclass(frozen=True, slots=True)
class Template:
    """A template as it is now: later messages may put more `<*>` into it."""

    number: int
    text: str
    # Of messages in each period, in the order of the periods.
    counts: tuple[int, ...]
    # The first message of it, or its beginning.
    sample: str

    @property
    def count(self) -> int:
        return self.counts[-1]

    @property
    def is_new(self) -> bool:
        """There is one in the last period, and none before."""
        return self.counts[-1] > 0 and not any(self.counts[:-1])

    @property
    def has_vanished(self) -> bool:
        """There is none in the last period, though there was in the one before."""
        return len(self.counts) > 1 and self.counts[-1] == 0 and self.counts[-2] > 0


class Templates:
    """The templates of one period after another, counted in each."""

    def __init__(
        self,
        *,
        templates_max: int = TEMPLATES_MAX,
        implementation: Implementation = IMPLEMENTATION,
    ) -> None:
        self._templates_max = templates_max
        self._miner = implementation.Miner(templates_max)
        self._samples: list[str] = []
        # A row for each period; the column behind the last template is for all others.
        self._counts = [np.zeros(templates_max + 1, np.int64)]

    @property
    def messages(self) -> int:
        """Of the last period."""
        return int(self._counts[-1].sum())

    @property
    def others(self) -> int:
        """Messages of the last period that fit no template, when there was no room for more."""
        return int(self._counts[-1][self._templates_max])

    def begin_period(self) -> None:
        self._counts.append(np.zeros(self._templates_max + 1, np.int64))

    def add(self, messages: pa.StringArray) -> NDArray[np.int32]:
        """For each message the number of its template; below 0 if it has none."""
        numbers = self._miner.add(messages)
        self._keep_samples(messages, numbers)
        # -1 is no message, -2 one of the others.
        is_counted = numbers != -1
        places = np.where(numbers < 0, self._templates_max, numbers)[is_counted]
        self._counts[-1] += np.bincount(places, minlength=self._templates_max + 1)
        return numbers

    def found(self) -> list[Template]:
        """Every template, in the order in which they were found."""
        counts = np.stack(self._counts)
        return [
            Template(number, text, tuple(int(each) for each in counts[:, number]), sample)
            for number, (text, sample) in enumerate(
                zip(self._miner.texts(), self._samples, strict=True)
            )
        ]

    def _keep_samples(self, messages: pa.StringArray, numbers: NDArray[np.int32]) -> None:
        known = len(self._samples)
        places, rows = np.unique(numbers, return_index=True)
        # Numbers are given in order, so the new ones follow those that are known.
        for row in rows[places >= known]:
            self._samples.append(messages[int(row)].as_py()[:_SAMPLE_CHARACTERS])


def most_frequent(templates: Sequence[Template], count: int) -> list[Template]:
    """Those with most messages in the last period, the first found first where they are equal."""
    seen = [template for template in templates if template.count]
    return sorted(seen, key=lambda template: -template.count)[:count]
