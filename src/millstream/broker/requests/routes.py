"""Which APIs this node answers, and with what: those that have a file in `broker/handlers`.

An API is `wire/apis/<name>.py`, which says what is on the wire, and `handlers/<name>.py`, which
says what is done about it. Nothing else names it. A handler module has

    handle(broker, request, body) -> XResponse, or a coroutine of one

and may state about itself:

    READS_FRAME = True          handle(broker, request, cursor) reads and answers bytes itself
    HOLDS_NEXT_REQUEST = True   its effect comes after a wait, and the connection's next request
                                must see it
"""

import pkgutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.broker.network.replies import Pending, Pieces
from millstream.broker.requests.request import Request
from millstream.wire.apis import declared
from millstream.wire.cursor import Cursor
from millstream.wire.message import Api, Message

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

Handler = Callable[["Broker", Request, Any], Message | Coroutine[Any, Any, Message]]
FrameHandler = Callable[["Broker", Request, Cursor], Pieces | Pending]

_HANDLERS: Final = "millstream.broker.handlers"


@dataclass(frozen=True, slots=True)
class Route:
    """An API with its handler; one of `handle` and `handle_frame` is there."""

    api: Api
    handle: Handler | None
    handle_frame: FrameHandler | None
    holds_next_request: bool


@cache
def served() -> dict[int, Api]:
    """The APIs that this node answers, by key."""
    folder = Path(__file__).parents[1] / "handlers"
    names = {file.name for file in pkgutil.iter_modules([str(folder)])}
    return {api.key: api for api in declared() if api.name in names}


def load_route(api: Api) -> Route:
    """Imports the handler, so that a start does not pay for what nobody asks."""
    module = import_module(f"{_HANDLERS}.{api.name}")
    reads_frame = getattr(module, "READS_FRAME", False)
    return Route(
        api,
        None if reads_frame else module.handle,
        module.handle if reads_frame else None,
        getattr(module, "HOLDS_NEXT_REQUEST", False),
    )
