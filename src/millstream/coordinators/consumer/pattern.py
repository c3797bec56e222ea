"""Patterns of topic names, as the consumer protocol sends them (RE2's syntax).

Matched against the whole name, in time linear in it, whatever the pattern: the pattern
becomes a set of states, and every set that occurs is remembered as one step of a table.
Python's own `re` tries alternatives one after the other, and a client could make the node
think for hours.

What is understood: literals, `.`, classes, `\\d \\w \\s` and their opposites, groups, `|`,
`* + ? {n,m}`, `^` and `$`, and `(?i)` at the start.
"""

import string
from collections.abc import Iterable, Iterator
from typing import Final

from millstream.errors import KafkaCode, KafkaError
from millstream.model import TOPIC_NAME_LENGTH_MAX

# More than anyone needs to name topics, and little to compute.
PATTERN_LENGTH_MAX: Final = 1024
STATES_MAX: Final = 4096
_TABLE_ROWS_MAX: Final = 2000
_REPEAT_MAX: Final = TOPIC_NAME_LENGTH_MAX + 1

_ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")
_CLASSES: Final = {
    "d": frozenset(string.digits),
    "w": frozenset(string.ascii_letters + string.digits + "_"),
    "s": frozenset(" \t\n\r\f"),
}


class _Node:
    """A state: it takes one of `characters` to `follow`, or goes on to `empty` for free.

    With an `anchor` it goes on for free only at the start, or at the end, of the name.
    """

    __slots__ = ("anchor", "characters", "empty", "follow")

    def __init__(self) -> None:
        self.anchor = ""
        self.characters: frozenset[str] = frozenset()
        self.follow: _Node | None = None
        self.empty: list[_Node] = []


_Fragment = tuple[_Node, _Node]


class TopicPattern:
    def __init__(self, text: str) -> None:
        """Raises KafkaError where the pattern cannot be understood."""
        parser = _Parser(text)
        start, self._end = parser.parse()
        self._start = _closure([start], passable="^")
        self._table: dict[frozenset[_Node], dict[str, frozenset[_Node]]] = {}

    def matches(self, name: str) -> bool:
        states = self._start
        for character in name:
            if not states:
                return False
            row = self._table.get(states)
            if row is None:
                if len(self._table) >= _TABLE_ROWS_MAX:
                    self._table.clear()
                row = self._table[states] = {}
            following = row.get(character)
            if following is None:
                following = row[character] = _step(states, character)
            states = following
        return self._end in _closure(states, passable="$" if name else "^$")


def _step(states: frozenset[_Node], character: str) -> frozenset[_Node]:
    return _closure(
        [node.follow for node in states if node.follow is not None and character in node.characters]
    )


def _closure(nodes: Iterable[_Node], *, passable: str = "") -> frozenset[_Node]:
    """Where one can be without another character; `passable` are the anchors that hold."""
    found: set[_Node] = set()
    left = list(nodes)
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            if node.anchor in passable:
                left.extend(node.empty)
    return frozenset(found)


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_LENGTH_MAX:
            raise _invalid(f"it is longer than {PATTERN_LENGTH_MAX} characters")
        self._is_caseless = text.startswith("(?i)")
        self._text = text.removeprefix("(?i)")
        self._position = 0
        self._states = 0

    def parse(self) -> _Fragment:
        fragment = self._alternatives(depth=0)
        if self._position < len(self._text):
            raise _invalid(f"unexpected {self._text[self._position]!r}")
        return fragment

    def _peek(self) -> str:
        return self._text[self._position] if self._position < len(self._text) else ""

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise _invalid("it ends too early")
        self._position += 1
        return character

    def _node(self) -> _Node:
        self._states += 1
        if self._states > STATES_MAX:
            raise _invalid("it is too large")
        return _Node()

    def _alternatives(self, depth: int) -> _Fragment:
        if depth > 50:
            raise _invalid("its groups are too deep")
        start, end = self._node(), self._node()
        while True:
            first, last = self._sequence(depth)
            start.empty.append(first)
            last.empty.append(end)
            if self._peek() != "|":
                return start, end
            self._position += 1

    def _sequence(self, depth: int) -> _Fragment:
        start = end = self._node()
        while self._peek() not in ("", "|", ")"):
            begin = self._position
            fragment = self._atom(depth)
            for first, last in self._repeated(fragment, begin, depth):
                end.empty.append(first)
                end = last
        return start, end

    def _atom(self, depth: int) -> _Fragment:
        character = self._take()
        if character == "(":
            if self._text.startswith("?:", self._position):
                self._position += 2
            elif self._peek() == "?":
                raise _invalid("only plain groups and (?: are understood")
            fragment = self._alternatives(depth + 1)
            if self._take() != ")":
                raise _invalid("a group is not closed")
            return fragment
        if character in "*+?{":
            raise _invalid(f"nothing to repeat before {character!r}")
        if character in "^$":
            return self._anchor(character)
        if character == ".":
            return self._one_of(None)
        if character == "[":
            return self._one_of(self._set())
        if character == "\\":
            return self._one_of(self._escape())
        return self._one_of(frozenset(character))

    def _anchor(self, character: str) -> _Fragment:
        start, end = self._node(), self._node()
        start.anchor = character
        start.empty.append(end)
        return start, end

    def _one_of(self, characters: frozenset[str] | None) -> _Fragment:
        start, end = self._node(), self._node()
        start.characters = _ALPHABET if characters is None else characters
        if self._is_caseless:
            both = {c.lower() for c in start.characters} | {c.upper() for c in start.characters}
            start.characters = frozenset(both)
        start.follow = end
        return start, end

    def _escape(self) -> frozenset[str]:
        character = self._take()
        if character.lower() in _CLASSES:
            found = _CLASSES[character.lower()]
            return _ALPHABET - found if character.isupper() else found
        if character.isalnum():
            raise _invalid(f"\\{character} is not understood")
        return frozenset(character)

    def _set(self) -> frozenset[str]:
        is_negated = self._peek() == "^"
        self._position += is_negated
        found: set[str] = set()
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            character = self._take()
            if character == "[" and self._peek() == ":":
                raise _invalid("named classes are not understood")
            one = self._escape() if character == "\\" else frozenset(character)
            is_range = (
                len(one) == 1
                and self._peek() == "-"
                and self._text[self._position + 1 : self._position + 2] not in ("", "]")
            )
            if not is_range:
                found |= one
                continue
            self._position += 1
            last = self._take()
            (low,) = one
            (high,) = self._escape() if last == "\\" else (last,)
            if ord(low) > ord(high) or ord(high) - ord(low) > 0xFFFF:
                raise _invalid(f"the range {low}-{high} is the wrong way round")
            found |= {chr(code) for code in range(ord(low), ord(high) + 1)}
        self._position += 1
        return frozenset(_ALPHABET - found) if is_negated else frozenset(found)

    def _repeated(self, fragment: _Fragment, begin: int, depth: int) -> Iterator[_Fragment]:
        """The fragment as often as what follows it says."""
        end = self._position
        low, high = self._quantifier()
        after = self._position
        for number in range(max(low, 1 if high is None else high)):
            if number:
                # A copy: read the same text again.
                self._position = begin
                fragment = self._atom(depth)
                assert self._position == end
            if high is None and number == max(low, 1) - 1:
                fragment = self._looped(fragment, may_be_skipped=low == 0)
            elif number >= low:
                fragment = self._optional(fragment)
            yield fragment
        self._position = after

    def _quantifier(self) -> tuple[int, int | None]:
        bounds: tuple[int, int | None]
        match self._peek():
            case "*":
                bounds = (0, None)
            case "+":
                bounds = (1, None)
            case "?":
                bounds = (0, 1)
            case "{":
                bounds = self._counted()
            case _:
                return 1, 1
        self._position += 1
        if self._peek() == "?":
            # Lazy or not makes no difference to whether a whole name matches.
            self._position += 1
        if self._peek() and self._peek() in "*+{":
            raise _invalid(f"nothing to repeat before {self._peek()!r}")
        return bounds

    def _counted(self) -> tuple[int, int | None]:
        close = self._text.find("}", self._position)
        inside = self._text[self._position + 1 : close] if close > 0 else ""
        low, comma, high = inside.partition(",")
        if not low.isdigit() or (high and not high.isdigit()):
            raise _invalid(f"{{{inside}}} is no count")
        self._position = close
        least = int(low)
        most = None if comma and not high else int(high or low)
        if max(least, most or 0) > _REPEAT_MAX or (most is not None and most < least):
            raise _invalid(f"{{{inside}}} is no count")
        return least, most

    def _looped(self, fragment: _Fragment, *, may_be_skipped: bool) -> _Fragment:
        first, last = fragment
        start, end = self._node(), self._node()
        start.empty.append(first)
        last.empty += [first, end]
        if may_be_skipped:
            start.empty.append(end)
        return start, end

    def _optional(self, fragment: _Fragment) -> _Fragment:
        first, last = fragment
        start, end = self._node(), self._node()
        start.empty += [first, end]
        last.empty.append(end)
        return start, end


def _invalid(problem: str) -> KafkaError:
    return KafkaError(
        KafkaCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex is not valid: {problem}."
    )
