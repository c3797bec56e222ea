"""The tokens of a .proto file, and taking them one by one. Time is linear in the text."""

import re
from dataclasses import dataclass
from typing import Final

from millstream.registry.formats.text import HALF_PAIR, InvalidSchema, is_unicode

_REASON_CHARACTERS_MAX: Final = 200
_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*|\.[A-Za-z_][A-Za-z0-9_.]*)
    |(?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<mark>[{}\[\]()<>=;,:+/-])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|(.))", re.S
)
_SIMPLE: Final = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    position: int


class ProtoTokens:
    """Whatever is not as it should be raises InvalidSchema, with line and column."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._next = 0

    def _split(self, text: str) -> list[Token]:
        tokens, position = [], 0
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise self.wrong(f"unexpected {text[position]!r}", position)
            if found.lastgroup is not None:
                tokens.append(Token(found.lastgroup, found[0], position))
            position = found.end()
        tokens.append(Token("end", "the end", len(text)))
        return tokens

    def wrong(self, reason: str, position: int) -> InvalidSchema:
        line = self._text.count("\n", 0, position) + 1
        column = position - self._text.rfind("\n", 0, position)
        return InvalidSchema(f"line {line}, column {column}: {reason[:_REASON_CHARACTERS_MAX]}")

    @property
    def now(self) -> Token:
        return self._tokens[self._next]

    def ahead(self, count: int) -> Token:
        """The token so many after the next one."""
        return self._tokens[min(self._next + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        token = self.now
        self._next += token.kind != "end"
        return token

    def takes(self, text: str) -> bool:
        """Take this token if it is the next one."""
        is_next = self.now.text == text and self.now.kind in ("word", "mark")
        self._next += is_next
        return is_next

    def expect(self, text: str) -> None:
        if not self.takes(text):
            raise self.wrong(f"expected {text!r}, not {self.now.text!r}", self.now.position)

    def word(self) -> str:
        token = self.take()
        if token.kind != "word":
            raise self.wrong(f"expected a name, not {token.text!r}", token.position)
        return token.text

    def name(self) -> str:
        token = self.now
        name = self.word()
        if "." in name:
            raise self.wrong(f"{name!r} must be a name without dots", token.position)
        return name

    def string(self) -> str:
        token = self.now
        if token.kind != "string":
            raise self.wrong(f"expected a string, not {token.text!r}", token.position)
        parts = []
        # Strings side by side are one.
        while self.now.kind == "string":
            parts.append(_unescaped(self.take().text[1:-1]))
        found = "".join(parts)
        if not is_unicode(found):
            raise self.wrong(HALF_PAIR, token.position)
        return found

    def integer(self, limit: int) -> int:
        is_negative = self.takes("-")
        token = self.take()
        try:
            # A number of thousands of digits is refused here, too.
            value = _integer_of(token.text) if token.kind == "number" else None
        except ValueError:
            value = None
        if value is None or value > limit + is_negative:
            raise self.wrong(f"expected a whole number, not {token.text!r}", token.position)
        return -value if is_negative else value


def _integer_of(text: str) -> int:
    """Raises ValueError."""
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return int(text, 8) if text.startswith("0") and text != "0" else int(text)


def _unescaped(text: str) -> str:
    def one(found: "re.Match[str]") -> str:
        octal, hexadecimal, code, simple = found.groups()
        if octal or hexadecimal:
            return chr(int(octal, 8) & 0xFF if octal else int(hexadecimal, 16))
        return chr(int(code, 16)) if code else _SIMPLE.get(simple, simple)

    return _ESCAPE.sub(one, text)


def escaped(text: str) -> str:
    """Between double quotes."""
    for character, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(character, escape)
    return "".join(one if one >= " " else f"\\{ord(one):03o}" for one in text)
