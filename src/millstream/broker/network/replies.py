"""A reply before it is sent: there already, still to come, or known from the time before."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.broker.network.connection import Connection
    from millstream.broker.network.receiving import Expected

Pieces = list[object]


class Pending:
    """A reply that is not there yet. `gate` holds back the connection's next frame.

    A coroutine becomes a task; a future does without, which is much cheaper. Cheapest is to
    wait for something itself, with `finish` to make the reply when it is done.
    """

    __slots__ = ("answer", "finish", "gate")

    def __init__(
        self,
        answer: "Coroutine[Any, Any, Pieces] | asyncio.Future[Any]",
        *,
        finish: "Callable[[asyncio.Future[Any]], Pieces] | None" = None,
        gate: bool = False,
    ) -> None:
        self.answer = answer
        self.finish = finish
        self.gate = gate


class Shortcut:
    """How to answer the request that a client is about to repeat."""

    __slots__ = ("answer", "expected")

    def __init__(
        self,
        answer: Callable[["Connection", memoryview], Pieces | Pending | None],
        expected: "Expected | None" = None,
    ) -> None:
        """`answer` gives None for any other frame. `expected` is the same request for
        `receiving`, which may answer it by itself."""
        self.answer = answer
        self.expected = expected


class Slot:
    """A reply's place in the queue."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: Pieces | None) -> None:
        self.pieces = pieces
