"""A reply before it is sent: ready, pending, or known from the previous request.

A connection answers in request order. A reply that must wait for something (a sync, new
records, a deadline) keeps its place in the `ReplyQueue`, and those behind it wait.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from millstream.broker.network.output import memory_bytes_of, release_all
from millstream.broker.network.receiving import Expected

Pieces = list[object]


class Pending:
    """A reply that is not ready yet. `gate` holds back the connection's next frame.

    A coroutine becomes a task; a future needs none, which is much cheaper. Cheapest is to
    wait for the future of something else, with `finish` to build the reply when it is done.
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


async def settled(reply: Pieces | Pending) -> Pieces:
    """For a coroutine, which has to wait for another's reply."""
    if not isinstance(reply, Pending):
        return reply
    if reply.finish is None:
        pieces: Pieces = await reply.answer
        return pieces
    assert isinstance(reply.answer, asyncio.Future)
    await asyncio.wait([reply.answer])
    return reply.finish(reply.answer)


class Shortcut:
    """How to answer the request that a client is about to repeat, in one generation."""

    __slots__ = ("answer", "expected", "generation")

    def __init__(
        self,
        answer: Callable[[Any, memoryview], Pieces | Pending | None],
        generation: int,
        expected: Expected | None = None,
    ) -> None:
        """`answer` takes the connection and a frame, and returns None for any other frame.
        `expected` is the same request for `receiving`, which may answer it without Python."""
        self.answer = answer
        self.generation = generation
        self.expected = expected


class Slot:
    """A reply's place in the queue."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: Pieces | None) -> None:
        # None until the reply is ready.
        self.pieces = pieces


class ReplyQueue:
    """Replies in request order, starting with the first that is not ready."""

    __slots__ = ("_slots", "gates", "memory_bytes")

    def __init__(self) -> None:
        self._slots: deque[Slot] = deque()
        # Of the replies that are ready and wait for another's, what is not in files.
        self.memory_bytes = 0
        # Requests whose effect is still to come: the next frame waits while it is not 0.
        self.gates = 0

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, pieces: Pieces | None, *, gate: bool = False) -> Slot:
        slot = Slot(pieces)
        self._slots.append(slot)
        self.gates += gate
        if pieces:
            self.memory_bytes += memory_bytes_of(pieces)
        return slot

    def settle(self, slot: Slot, pieces: Pieces, *, gate: bool) -> Iterator[Pieces]:
        """The reply is ready. Yields it and those behind it, if it is first in line."""
        self.gates -= gate
        slots = self._slots
        if slots[0] is not slot:
            slot.pieces = pieces
            self.memory_bytes += memory_bytes_of(pieces)
            return
        slots.popleft()
        if pieces:
            yield pieces
        while slots and (ready := slots[0].pieces) is not None:
            slots.popleft()
            if ready:
                self.memory_bytes -= memory_bytes_of(ready)
                yield ready

    def clear(self) -> None:
        for slot in self._slots:
            release_all(slot.pieces or ())
        self._slots.clear()
        self.memory_bytes = 0
