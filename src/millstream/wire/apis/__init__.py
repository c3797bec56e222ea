"""What each API looks like on the wire: one file per API, named like its handler.

A file declares the request with its key and versions, the response, and the structures in
them (see `wire.message`). It has only shapes; `broker/handlers/<name>.py` says what a node
does with them. A file without a handler is an API that only our clients use.
"""

import pkgutil
from functools import cache
from importlib import import_module

from millstream.wire.message import APIS, Api


@cache
def declared() -> list[Api]:
    """Every API that has a file, by key."""
    for file in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{file.name}")
    return sorted(APIS.values(), key=lambda api: api.key)


def declared_api(key: int) -> Api | None:
    """The API with this key, if it has a file."""
    declared()
    return APIS.get(key)
