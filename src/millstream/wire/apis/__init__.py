"""What each API looks like on the wire: one file per API, named as its handler is.

A file declares the request with its key and versions, the response, and the structures in
them (see `wire.message`). Here are only shapes; `broker/handlers/<name>.py` says what a node
does with them. A file without a handler is an API that only our clients speak.
"""

import pkgutil
from functools import cache
from importlib import import_module

from millstream.wire.message import APIS, Api


@cache
def declared() -> list[Api]:
    """Every API there is a file for, by key."""
    for file in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{file.name}")
    return sorted(APIS.values(), key=lambda api: api.key)


def declared_api(key: int) -> Api | None:
    """The API with this key, if there is a file for it."""
    declared()
    return APIS.get(key)
