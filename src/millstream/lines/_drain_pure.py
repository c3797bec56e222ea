"""Templates of messages in plain Python: what `_drain.pyx` is held against.

A message belongs to a template if at least `SIMILARITY_TENTHS` of its words are the same or `<*>`
there, and otherwise begins another.
"""

import re
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

NAME: Final = "pure Python"
ANYTHING: Final = b"<*>"
CHILDREN_MAX: Final = 100
TOKENS_MAX: Final = 128
# The share of its tokens that a message has in common with its template, in tenths.
SIMILARITY_TENTHS: Final = 7
NOTHING: Final = -1
OTHER: Final = -2

_IN_WORD: Final = rb"[0-9A-Za-z\x80-\xff]"
_NUMBER: Final = (
    rb"(?:0[xX][0-9a-fA-F]+|[0-9]+|(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,})(?!" + _IN_WORD + rb")"
)
# A number, and those that follow it as in addresses, versions and UUIDs.
_NUMBERS: Final = re.compile(
    rb"(?<!" + _IN_WORD + rb")[-+]?" + _NUMBER + rb"(?:[.:]" + _NUMBER + rb"|-(?:" + _NUMBER
    + rb"|[0-9a-fA-F]{4,}(?!" + _IN_WORD + rb")))*"
)  # fmt: skip
_TOKEN: Final = re.compile(rb"[^ \t\n\v\f\r]+")
_VARIES: Final = re.compile(rb"[0-9]|<\*>")
_WORD: Final = re.compile(_IN_WORD)
# What is mixed into a hash: a word, a replaced number, or a single sign.
_PARTS: Final = re.compile(_IN_WORD + rb"+|<\*>|.", re.DOTALL)
_HASH_START: Final = 0xCBF29CE484222325
_HASH_PRIME: Final = 0x9E3779B97F4A7C15
_OF_SIGN: Final = 8 << 56
_OF_ANYTHING: Final = 9 << 56
_OF_END: Final = 10 << 56

Leaf = list[int]
Children = dict[bytes, "dict[bytes, Leaf]"]


def tokens_of(message: bytes) -> list[bytes]:
    """The first words of a message, with numbers replaced."""
    found: list[bytes] = []
    for token in _TOKEN.finditer(message):
        if len(found) == TOKENS_MAX:
            break
        found.append(_NUMBERS.sub(ANYTHING, token[0]))
    return found


def skeleton_hashes(messages: pa.StringArray) -> NDArray[np.uint64]:
    """For each message a number that is the same for the same tokens; 0 for none."""
    found = [
        0 if message is None else _hash(tokens_of(message.encode()))
        for message in messages.to_pylist()
    ]
    return np.array(found, np.uint64)


def _hash(tokens: list[bytes]) -> int:
    found = _HASH_START
    for token in tokens:
        for part in _PARTS.findall(token):
            for each in _mixed_in(part):
                found = _mixed(found, each)
        found = _mixed(found, _OF_END)
    return found or 1


def _mixed_in(part: bytes) -> list[int]:
    """A word is mixed in by eight letters at once, and the rest with their number."""
    if part == b"<*>":
        return [_OF_ANYTHING]
    if not _WORD.match(part):
        return [_OF_SIGN | part[0]]
    numbers = [int.from_bytes(part[at : at + 8], "little") for at in range(0, len(part), 8)]
    rest = len(part) % 8
    if rest == 0:
        numbers.append(0)
    numbers[-1] |= rest << 56
    return numbers


def _mixed(found: int, part: int) -> int:
    found = (found ^ part) * _HASH_PRIME & 0xFFFFFFFFFFFFFFFF
    return found ^ found >> 32


def group_hashes(
    hashes: NDArray[np.uint64],
) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.int32]]:
    """Different numbers in the order in which they come, where each comes first, and for each
    number its place among the different ones."""
    places: dict[int, int] = {}
    first: list[int] = []
    groups: list[int] = []
    for row, each in enumerate(hashes.tolist()):
        if each not in places:
            places[each] = len(first)
            first.append(row)
        groups.append(places[each])
    rows = np.array(first, np.int32)
    return hashes[rows], rows, np.array(groups, np.int32)


class Miner:
    def __init__(self, templates_max: int) -> None:
        self._templates_max = templates_max
        self._templates: list[list[bytes]] = []
        # By the number of tokens, the first, and the second.
        self._tree: dict[int, Children] = {}

    def add(self, messages: pa.StringArray) -> NDArray[np.int32]:
        """For each message the number of its template, `NOTHING` or `OTHER`."""
        numbers = [
            NOTHING if message is None else self._add(tokens_of(message.encode()))
            for message in messages.to_pylist()
        ]
        return np.array(numbers, np.int32)

    def texts(self, start: int = 0) -> list[str]:
        """The templates from this number on."""
        return [b" ".join(tokens).decode() for tokens in self._templates[start:]]

    def _add(self, tokens: list[bytes]) -> int:
        leaf = self._leaf(tokens)
        best, best_same, best_any = -1, -1, -1
        for number in leaf:
            template = self._templates[number]
            anything = sum(each == ANYTHING for each in template)
            same = anything + sum(
                one == other and one != ANYTHING
                for one, other in zip(template, tokens, strict=True)
            )
            if (same, anything) > (best_same, best_any):
                best, best_same, best_any = number, same, anything
        if best >= 0 and best_same * 10 >= SIMILARITY_TENTHS * len(tokens):
            template = self._templates[best]
            for place, token in enumerate(tokens):
                if template[place] != token:
                    template[place] = ANYTHING
            return best
        if len(self._templates) >= self._templates_max:
            return OTHER
        self._templates.append(tokens)
        leaf.append(len(self._templates) - 1)
        return len(self._templates) - 1

    def _leaf(self, tokens: list[bytes]) -> Leaf:
        """The templates of which one may be that of the message."""
        # Where there is no room for more, leaves are looked up but not kept.
        children = self._tree.setdefault(len(tokens), {})
        first = _key(tokens, 0, children)
        grandchildren = children.setdefault(first, {})
        second = _key(tokens, 1, grandchildren)
        return grandchildren.setdefault(second, [])


def _key(tokens: list[bytes], place: int, children: "Children | dict[bytes, Leaf]") -> bytes:
    """The token, or that of anything where it varies or too many are known."""
    token = tokens[place] if place < len(tokens) else b""
    if _VARIES.search(token):
        return ANYTHING
    if token not in children and len(children) >= CHILDREN_MAX:
        return ANYTHING
    return token
