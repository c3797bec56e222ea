"""A page is declared once and served twice: as HTML, and as JSON under /api/v1.

Its view is a function from the console and the request's values to a dataclass. The template
and the JSON show the same one, so the console has no private data path. An action is what a
form does; programs call it with JSON.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Final

from millstream.console.console import BadInput, Console

API_PREFIX: Final = "/api/v1"


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a request: of its path, its query or its form. All of them are text."""

    all: Mapping[str, str]

    def text(self, name: str, default: str = "") -> str:
        return self.all.get(name, default).strip()

    def raw(self, name: str) -> str:
        return self.all.get(name, "")

    def has(self, name: str) -> bool:
        return bool(self.text(name))

    def number(self, name: str, default: int, *, low: int = 0, high: int = 2**63 - 1) -> int:
        text = self.text(name)
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            raise BadInput(f"{name} must be a whole number, not {text[:40]!r}.") from None
        if not low <= value <= high:
            raise BadInput(f"{name} must be between {low} and {high}.")
        return value

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of `choices`; the first by default."""
        text = self.text(name) or choices[0]
        if text not in choices:
            raise BadInput(f"{name} must be one of {', '.join(choices)}.")
        return text


View = Callable[[Console, Values], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    about: str


@dataclass(frozen=True, slots=True)
class Page:
    path: str
    template: str
    view: View
    summary: str
    parameters: tuple[Parameter, ...] = ()
    # Shows the newest sample and nothing else, so that all who look share one rendering.
    is_of_sample: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """What an action did, and the page to show next."""

    text: str
    url: str
    values: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Action:
    path: str
    run: Callable[[Console, Values], Awaitable[Done]]
    summary: str
    parameters: tuple[Parameter, ...] = ()


def plain(value: object) -> object:
    """A view as what JSON has: dataclasses with their fields and properties become objects."""
    if is_dataclass(value) and not isinstance(value, type):
        found = {each.name: plain(getattr(value, each.name)) for each in fields(value)}
        for kind in type(value).__mro__:
            for name, attribute in vars(kind).items():
                if isinstance(attribute, property) and not name.startswith("_"):
                    found[name] = plain(getattr(value, name))
        return found
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(each) for each in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
