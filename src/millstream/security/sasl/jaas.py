"""Kafka's JAAS lines: a login module and its options.

org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";
"""

import re
from typing import Final

from millstream.lazy_dataclass import dataclass

_MODULE: Final = re.compile(
    r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b\s*(.*?)\s*;\s*",
    re.DOTALL | re.IGNORECASE,
)
_OPTION: Final = re.compile(
    r"""([^\s="';]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';]+))(?:\s+|$)""",
    re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LoginModule:
    """`name` is the class without its package."""

    name: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r})"


def parse_jaas(text: str) -> LoginModule:
    """Raises ValueError, whose text contains no secret."""
    found = _MODULE.fullmatch(text)
    if found is None:
        raise ValueError('not of the form `<class>LoginModule required name="value" ...;`')
    rest, position = found[3], 0
    options: dict[str, str] = {}
    while position < len(rest):
        option = _OPTION.match(rest, position)
        if option is None:
            raise ValueError(
                f'option {len(options) + 1} is not of the form name="value"; in a value, write '
                '\\" for " and \\\\ for \\'
            )
        double, single, bare = option.group(2, 3, 4)
        quoted = double if double is not None else single
        options[option[1]] = bare if quoted is None else _ESCAPED.sub(r"\1", quoted)
        position = option.end()
    return LoginModule(found[1].rpartition(".")[2], options)
