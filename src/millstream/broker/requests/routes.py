"""Which APIs this node answers, and with what: those that have a file in `broker/handlers`.

An API is `wire/apis/<name>.py`, which declares its messages, and `handlers/<name>.py`, which
implements it. Nothing else names it. Both are imported when the first request comes, in a thread.
A handler module has

    handle(<parts of the node>, request, body) -> XResponse, or a coroutine of one

whose parts are named as in `services`, and may declare:

    READS_FRAME = True          handle(..., request, cursor) reads and answers bytes itself
    HOLDS_NEXT_REQUEST = True   its effect comes after a wait, and the connection's next request
                                must see it
    refuse(request, body, code) the response if the whole request is denied; needed where
                                `security.operations` has a rule for that
"""

import pkgutil
import sys
from collections.abc import Callable, Coroutine
from functools import cache, partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Final

from millstream.broker.network.replies import Pending, Pieces
from millstream.broker.requests.request import Request
from millstream.broker.requests.services import Services
from millstream.errors import KafkaCode
from millstream.lazy_dataclass import dataclass
from millstream.wire.apis import Listed, declared, declared_api, listed
from millstream.wire.apis.api_versions import ApiVersionsKey
from millstream.wire.cursor import Cursor
from millstream.wire.message import Api, Message
from millstream.wire.vendor import KEYS_FROM

Handler = Callable[[Request, Any], Message | Coroutine[Any, Any, Message]]
# The response to a request that is refused as a whole.
Refuser = Callable[[Request, Any, KafkaCode], Message]
FrameHandler = Callable[[Request, Cursor], Pieces | Pending]

_HANDLERS: Final = "millstream.broker.handlers"
# They read frames in place, and the next frame must not wait for the end of a long poll.
_IMPORTED_AT_ONCE: Final = frozenset({"produce", "fetch"})
# GetTelemetrySubscriptions and PushTelemetry.
_TELEMETRY: Final = frozenset({71, 72})


@dataclass(frozen=True, slots=True)
class Route:
    """An API with its handler; exactly one of `handle` and `handle_frame` is set."""

    api: Api
    handle: Handler | None
    handle_frame: FrameHandler | None
    holds_next_request: bool
    refuse: Refuser | None
    # No client has a reason to name more than a few things: a request that does is not read.
    names_few: bool


@cache
def served() -> dict[int, Listed]:
    """The APIs that this node answers, by key."""
    folder = Path(__file__).parents[1] / "handlers"
    names = {file.name for file in pkgutil.iter_modules([str(folder)])}
    return {key: one for key, one in listed().items() if one.name in names}


def served_api(key: int) -> Api | None:
    """With its messages, which are imported now; None if this node does not answer it."""
    return declared_api(key) if key in served() else None


def served_apis() -> list[Api]:
    """All of them, by key."""
    return [api for api in declared() if api.key in served()]


def listed_versions(
    *, with_ours: bool = False, with_telemetry: bool = False
) -> list[ApiVersionsKey]:
    """The versions that ApiVersions answers, with or without the keys that Kafka lacks, and those
    by which clients learn that somebody wants their metrics."""
    return [
        ApiVersionsKey(api_key=key, min_version=one.min_listed, max_version=one.max_listed)
        for key, one in served().items()
        if (with_ours or key < KEYS_FROM) and (with_telemetry or key not in _TELEMETRY)
    ]


def is_imported(one: Listed) -> bool:
    """Is its handler there, or does its import take no time that others would notice?"""
    return one.name in _IMPORTED_AT_ONCE or f"{_HANDLERS}.{one.name}" in sys.modules


def import_handler(one: Listed) -> None:
    """May run in a thread. Those of groups and transactions take as long as a start."""
    declared_api(one.key)
    import_module(f"{_HANDLERS}.{one.name}")


def load_route(api: Api, services: Services) -> Route:
    """Imports the handler, so that a start does not pay for APIs that are not used."""
    module = import_module(f"{_HANDLERS}.{api.name}")
    handle = partial(module.handle, *(getattr(services, name) for name in parts_of(module.handle)))
    reads_frame = getattr(module, "READS_FRAME", False)
    return Route(
        api,
        None if reads_frame else handle,
        handle if reads_frame else None,
        getattr(module, "HOLDS_NEXT_REQUEST", False),
        getattr(module, "refuse", None),
        getattr(module, "NAMES_FEW", False),
    )


def parts_of(handle: Callable[..., Any]) -> list[str]:
    """The parts of the node that a handler takes, in order: all parameters but the last two."""
    return list(signature(handle).parameters)[:-2]
