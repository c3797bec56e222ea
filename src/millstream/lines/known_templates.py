"""Templates that are known for long, found from skeletons: messages with their numbers replaced.

Drain's rule, as in `templates`, for the few different skeletons that many lines have. All that
decides where the next skeleton belongs can be stored and read back, and templates can be forgotten;
a miner of `templates` can do neither.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from millstream.lines._drain_pure import ANYTHING, CHILDREN_MAX, SIMILARITY_TENTHS, tokens_of

_SKELETON_BYTES_MAX: Final = 400

# The number of tokens, the first and the second, or what stands for them.
Leaf = tuple[int, bytes, bytes]


@dataclass(slots=True)
class KnownTemplate:
    number: int
    tokens: list[bytes]
    # Where it was found first; its tokens may have become more general since.
    leaf: Leaf

    @property
    def text(self) -> str:
        return b" ".join(self.tokens).decode(errors="replace")


def skeleton_of(message: str) -> str:
    """As many of the message's words as fit, with numbers replaced."""
    kept: list[bytes] = []
    size_bytes = 0
    for token in tokens_of(message.encode()):
        size_bytes += len(token) + 1
        if size_bytes > _SKELETON_BYTES_MAX and kept:
            break
        kept.append(token[:_SKELETON_BYTES_MAX])
    return b" ".join(kept).decode(errors="replace")


class KnownTemplates:
    def __init__(self, templates_max: int) -> None:
        self._templates_max = templates_max
        self.templates: dict[int, KnownTemplate] = {}
        self.next_number = 0
        self._leaves: dict[Leaf, list[int]] = {}
        # How many leaves each beginning has: of a number of tokens, then of a first token too.
        self._firsts: dict[int, dict[bytes, int]] = {}
        self._seconds: dict[tuple[int, bytes], dict[bytes, int]] = {}

    def __len__(self) -> int:
        return len(self.templates)

    def restore(self, templates: Iterable[KnownTemplate], next_number: int) -> None:
        for template in templates:
            self._put(template)
        self.next_number = next_number

    def find(self, skeleton: str) -> int | None:
        """The template of a skeleton, which may be a new one; None if there is no room for it."""
        tokens = skeleton.encode().split(b" ")
        leaf = self._leaf_of(tokens)
        best, best_fit = None, (-1, -1)
        for number in self._leaves.get(leaf, ()):
            fit = _fit(self.templates[number].tokens, tokens)
            if fit > best_fit:
                best, best_fit = self.templates[number], fit
        if best is not None and best_fit[0] * 10 >= SIMILARITY_TENTHS * len(tokens):
            for place, token in enumerate(tokens):
                if best.tokens[place] != token:
                    best.tokens[place] = ANYTHING
            return best.number
        if len(self.templates) >= self._templates_max:
            return None
        self._put(KnownTemplate(self.next_number, tokens, leaf))
        self.next_number += 1
        return self.next_number - 1

    def forget(self, number: int) -> None:
        length, first, second = leaf = self.templates.pop(number).leaf
        self._leaves[leaf].remove(number)
        if not self._leaves[leaf]:
            del self._leaves[leaf]
            _less(self._firsts[length], first)
            _less(self._seconds[length, first], second)

    def _put(self, template: KnownTemplate) -> None:
        length, first, second = template.leaf
        self.templates[template.number] = template
        if template.leaf not in self._leaves:
            self._leaves[template.leaf] = []
            firsts = self._firsts.setdefault(length, {})
            firsts[first] = firsts.get(first, 0) + 1
            seconds = self._seconds.setdefault((length, first), {})
            seconds[second] = seconds.get(second, 0) + 1
        self._leaves[template.leaf].append(template.number)

    def _leaf_of(self, tokens: list[bytes]) -> Leaf:
        first = _key(tokens, 0, self._firsts.get(len(tokens), {}))
        second = _key(tokens, 1, self._seconds.get((len(tokens), first), {}))
        return len(tokens), first, second


def _key(tokens: list[bytes], place: int, known: dict[bytes, int]) -> bytes:
    """The token, or that of anything where it varies or too many are known."""
    token = tokens[place] if place < len(tokens) else b""
    if ANYTHING in token or any(48 <= byte <= 57 for byte in token):
        return ANYTHING
    return ANYTHING if token not in known and len(known) >= CHILDREN_MAX else token


def _fit(template: list[bytes], tokens: list[bytes]) -> tuple[int, int]:
    """How many tokens a skeleton has in common with a template, and how many may be anything."""
    anything = template.count(ANYTHING)
    same = sum(
        one == other and one != ANYTHING for one, other in zip(template, tokens, strict=True)
    )
    return same + anything, anything


def _less(counts: dict[bytes, int], key: bytes) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
