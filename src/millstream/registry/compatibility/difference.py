"""One reason why a schema cannot read the data of another one."""

from dataclasses import dataclass
from typing import Final

# More than a person reads; a hostile pair of schemas could have millions.
DIFFERENCES_MAX: Final = 50
# Pairs of parts that one comparison may look at. Large schemas of practice need some thousands.
PAIRS_MAX: Final = 50_000


class TooManyPairs(Exception):
    """The schemas are too large to be compared, or made to be."""


@dataclass(frozen=True, slots=True)
class Difference:
    """`kind` is a word that tools can look for, `path` where it is in the reading schema."""

    kind: str
    path: str
    text: str

    def __str__(self) -> str:
        return f"{{errorType:'{self.kind}', description:'{self.text}', path:'{self.path or '/'}'}}"
