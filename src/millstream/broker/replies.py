"""A reply before it is sent: there already, still to come, or known from the time before."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millstream.broker.connection import Connection

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


# The answer to a frame that was expected, None to one that was not.
Shortcut = Callable[["Connection", memoryview], Pieces | Pending | None]


class Slot:
    """A reply's place in the queue."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: Pieces | None) -> None:
        self.pieces = pieces
