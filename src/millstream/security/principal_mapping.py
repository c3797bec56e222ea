"""From a client's certificate to its name, as Kafka does it.

The subject is text as Java writes it (`certificate_subject`), because people write rules and ACLs
for that text. `ssl.principal.mapping.rules` then make a shorter name of it.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

from millstream.config import ConfigError
from millstream.lazy_dataclass import dataclass
from millstream.model import ANONYMOUS, Principal
from millstream.security.certificate_subject import subject_name

_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<name>(?:\\.|[^\\/])*)/"
    r"(?P<case>[LU]?))\s*(?:,|\n|$)"
)
_SUBJECT_LENGTH_MAX: Final = 1 << 12


class NoRuleMatches(Exception):
    """The rules give no name for a subject, so the client is nobody."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Without a pattern it is DEFAULT: the subject is the name."""

    pattern: Any = None
    replacement: str = ""
    case: str = ""


def principal_of(certificate: bytes | None, rules: Sequence[Rule]) -> Principal:
    """Who a client is. `certificate` is DER, and proved. Raises NoRuleMatches."""
    if certificate is None:
        return ANONYMOUS
    subject = subject_name(certificate)
    if len(subject) > _SUBJECT_LENGTH_MAX:
        raise NoRuleMatches(f"the subject has {len(subject)} characters")
    return Principal(f"User:{mapped_name(subject, rules)}")


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


# -- the option -----------------------------------------------------------------------------


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
