"""From a client's certificate to its name, as Kafka does it.

The subject is written as Java writes it (RFC 2253: the most specific part first), because people
write rules and ACLs for that text. `ssl.principal.mapping.rules` then make a shorter name of it.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from millstream.config import ConfigError
from millstream.lazy_dataclass import dataclass
from millstream.model import ANONYMOUS, Principal

# Java writes these by name and every other attribute by its number, its value in hexadecimal.
_NAMES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
# Tags of ASN.1.
_VERSION: Final = 0xA0
# UTF8, Printable, Teletex, IA5, General, Universal and BMP strings. Java reads all as UTF-8.
_STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E})
_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<name>(?:\\.|[^\\/])*)/"
    r"(?P<case>[LU]?))\s*(?:,|\n|$)"
)
_PRINCIPAL_BYTES_MAX: Final = 1 << 12


class NoRuleMatches(Exception):
    """The rules give no name for a subject, so the client is nobody."""


# -- the subject ----------------------------------------------------------------------------


def principal_of(certificate: bytes | None, rules: Sequence["Rule"]) -> Principal:
    """Who a client is. `certificate` is DER, and proved. Raises NoRuleMatches."""
    if certificate is None:
        return ANONYMOUS
    subject = subject_name(certificate)
    if len(subject) > _PRINCIPAL_BYTES_MAX:
        raise NoRuleMatches(f"the subject has {len(subject)} characters")
    return Principal(f"User:{mapped_name(subject, rules)}")


def subject_name(certificate: bytes) -> str:
    """The subject of a certificate (DER), in the text of Java's X500Principal.getName()."""
    _, body, _ = _element(certificate, 0)
    _, body, _ = _element(body, 0)
    fields = list(_elements(body))
    if fields[0][0] == _VERSION:
        del fields[0]
    # Serial number, signature algorithm, issuer, validity, subject.
    parts = [part for _, part in _elements(fields[4][1])]
    return ",".join(
        "+".join(_attribute(pair) for _, pair in _elements(part)) for part in reversed(parts)
    )


def _attribute(pair: bytes) -> str:
    (_, number), (tag, value) = _elements(pair)
    name = _NAMES.get(_dotted(number))
    if name is None or tag not in _STRINGS:
        raw = pair[len(pair) - _whole_length(value) :]
        return f"{name or _dotted(number)}=#{raw.hex()}"
    return f"{name}={_escape(value.decode('utf-8', 'replace'))}"


def _escape(text: str) -> str:
    characters = []
    first, last = len(text) - len(text.lstrip(" \r")), len(text.rstrip(" \r"))
    for position, character in enumerate(text):
        if character == "\0":
            characters.append("\\00")
            continue
        if character in _ESCAPED or not first <= position < last:
            characters.append("\\")
        characters.append(character)
    return "".join(characters)


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(data):
        tag, value, position = _element(data, position)
        yield tag, value


def _element(data: bytes, position: int) -> tuple[int, bytes, int]:
    """Tag, value, and where the next element begins. OpenSSL has checked the certificate."""
    tag, length = data[position], data[position + 1]
    position += 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(data[position : position + count], "big")
        position += count
    return tag, data[position : position + length], position + length


def _whole_length(value: bytes) -> int:
    """Of an element with this value, its tag and length included."""
    size = len(value)
    return size + 2 if size < 0x80 else size + 2 + (size.bit_length() + 7) // 8


def _dotted(number: bytes) -> str:
    parts: list[int] = []
    value = 0
    for byte in number:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            parts.append(value)
            value = 0
    top = min(parts[0] // 40, 2)
    return ".".join(str(part) for part in (top, parts[0] - 40 * top, *parts[1:]))


# -- the rules ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """Without a pattern it is DEFAULT: the subject is the name."""

    pattern: Any = None
    replacement: str = ""
    case: str = ""


def parse_rules(text: str) -> list[Rule]:
    """`RULE:pattern/replacement/[LU]` and `DEFAULT`, separated by commas. Raises ConfigError."""
    rules = []
    position = 0
    while position < len(text.rstrip()):
        found = _RULE.match(text, position)
        if found is None:
            raise ConfigError(
                f"ssl.principal.mapping.rules: {text[position:]!r} is neither DEFAULT nor "
                "RULE:pattern/replacement/ with L or U after it, or nothing"
            )
        rules.append(Rule() if found["default"] else _rule(found))
        position = found.end()
    return rules or [Rule()]


def _rule(found: re.Match[str]) -> Rule:
    # Imported here: most nodes have no rule, and have to start fast.
    import re2

    try:
        # RE2 takes time that grows with the subject only, whatever the pattern.
        pattern = re2.compile(found["pattern"].replace("\\/", "/"))
    except re2.error as problem:
        raise ConfigError(
            f"ssl.principal.mapping.rules: {found['pattern']!r} is no pattern of RE2, which has no "
            f"backreferences and no lookaround: {problem}"
        ) from None
    _check_groups(found["name"], pattern.groups)
    return Rule(pattern, found["name"].replace("\\/", "/"), found["case"])


def _check_groups(replacement: str, count: int) -> None:
    for number in re.findall(r"(?<!\\)\$(\d)", replacement):
        if int(number) > count:
            raise ConfigError(
                f"ssl.principal.mapping.rules: {replacement!r} names group {number}, and the "
                f"pattern has {count}"
            )


def mapped_name(subject: str, rules: Sequence[Rule]) -> str:
    """The name by the first rule that matches. Raises NoRuleMatches."""
    for rule in rules:
        if rule.pattern is None:
            return subject
        found = rule.pattern.fullmatch(subject)
        if found is not None:
            return _cased(_filled(rule.replacement, found), rule.case)
    raise NoRuleMatches(f"ssl.principal.mapping.rules have no rule for {subject!r}")


def _filled(replacement: str, found: Any) -> str:
    def fill(part: re.Match[str]) -> str:
        if part[1]:
            return found.group(int(part[1])) or ""
        return part[2]

    return re.sub(r"\$(\d)|\\(.)", fill, replacement)


def _cased(name: str, case: str) -> str:
    if case == "L":
        return name.lower()
    return name.upper() if case == "U" else name
