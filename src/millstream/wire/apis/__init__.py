"""What each API looks like on the wire: one file per API, named like its handler.

A file declares the request with its key and versions, the response, and the structures in
them (see `wire.message`). It has only shapes; `broker/handlers/<name>.py` says what a node
does with them. A file without a handler is an API that only our clients use.
"""

import pkgutil
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from millstream.wire.message import APIS, Api

# As every file writes it: key=19, versions=(2, 7), and perhaps listed=(0, 7) later on.
_DECLARED: Final = re.compile(
    r"\bkey=([\d_]+),\s+versions=\((\d+), (\d+)\)(?:[^)]*\blisted=\((\d+), (\d+)\))?"
)


class Listed(NamedTuple):
    """What a node says of an API before it is used: its module's name and its versions."""

    key: int
    name: str
    min_listed: int
    max_listed: int


@cache
def listed() -> dict[int, Listed]:
    """Every API that has a file, by key, in order.

    Reads the declarations and imports none: the first client of a node asks for all of them, and
    uses few."""
    found = [_listed(file.name) for file in pkgutil.iter_modules(__path__)]
    return {one.key: one for one in sorted(found)}


def _listed(name: str) -> Listed:
    try:
        text = Path(__path__[0], f"{name}.py").read_text()
    except OSError:
        # An installation without sources.
        text = ""
    found = _DECLARED.search(text)
    if found is None:
        api = _imported(name)
        return Listed(api.key, name, api.min_listed, api.max_listed)
    key, low, high, min_listed, max_listed = found.groups()
    return Listed(int(key), name, int(min_listed or low), int(max_listed or high))


def _imported(name: str) -> Api:
    module = f"{__name__}.{name}"
    import_module(module)
    # A copy: another thread may import a file meanwhile.
    [api] = [one for one in list(APIS.values()) if one.request.__module__ == module]
    return api


def declared() -> list[Api]:
    """Every API that has a file, by key."""
    return [_imported(one.name) for one in listed().values()]


def declared_api(key: int) -> Api | None:
    """The API with this key, if it has a file."""
    if key not in APIS and key in listed():
        import_module(f"{__name__}.{listed()[key].name}")
    return APIS.get(key)
