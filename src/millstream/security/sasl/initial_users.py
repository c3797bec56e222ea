"""The SCRAM users that a new cluster begins with, as an option writes them.

    SCRAM-SHA-512=[name=admin,password=secret,iterations=8192];SCRAM-SHA-256=[...]

It is the form of `kafka-storage format --add-scram`. Values with a comma, a bracket or a
quotation mark are quoted.
"""

import re
from typing import Final

from millstream.lazy_dataclass import dataclass
from millstream.security.sasl.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN

_VALUE: Final = r'(?:"(?:[^"\\]|\\.)*"|[^",\[\]]+)'
_USER: Final = re.compile(rf"\s*([A-Z0-9-]+)\s*=\s*\[((?:\w+={_VALUE},?)+)\]\s*(?:;|$)", re.DOTALL)
_PAIR: Final = re.compile(rf"(\w+)=({_VALUE})(?:,|$)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class InitialUser:
    mechanism: str
    name: str
    password: str
    iterations: int

    def __repr__(self) -> str:
        return f"InitialUser({self.mechanism!r}, {self.name!r})"


def parse_initial_users(text: str) -> list[InitialUser]:
    """Raises ValueError, whose text contains no password."""
    users: list[InitialUser] = []
    position = 0
    while position < len(text.rstrip()):
        found = _USER.match(text, position)
        if found is None:
            raise ValueError(
                f"entry {len(users) + 1} is not of the form SCRAM-SHA-512=[name=...,password=...]"
            )
        users.append(
            _user(found[1], {key: _plain(value) for key, value in _PAIR.findall(found[2])})
        )
        position = found.end()
    return users


def _user(mechanism: str, fields: dict[str, str]) -> InitialUser:
    if mechanism not in HASHES:
        raise ValueError(f"{mechanism} is not one of {', '.join(HASHES)}")
    iterations = fields.pop("iterations", str(ITERATIONS_MIN))
    if set(fields) != {"name", "password"}:
        raise ValueError("an entry has a name, a password and, if wanted, iterations")
    if not iterations.isdecimal() or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise ValueError(f"iterations must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return InitialUser(mechanism, fields["name"], fields["password"], int(iterations))


def _plain(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
