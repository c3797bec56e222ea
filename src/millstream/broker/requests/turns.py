"""Long work of a request, in short turns, and a bound on what it answers.

A request may name thousands of resources. Handlers answer the first of them at once; what
takes longer than a turn goes on later, one turn at a time for all requests together, so that
other clients wait for one turn and not for the request. Work ends when its client is gone.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

from millstream.broker.network.connection import ClientGone
from millstream.broker.requests.freeing import free
from millstream.broker.requests.long_answers import LongAnswers
from millstream.broker.requests.pacing import Each, Pace, at_once, pause_after
from millstream.broker.requests.request import Request
from millstream.lazy_dataclass import dataclass
from millstream.wire.message import Message

TURN_SECONDS_MAX: Final = 0.0005
# Before each turn the loop is left to other addresses, if there are any. It sleeps if nobody needs
# it, and then gets a core as soon as something arrives, unlike a process that never sleeps. After
# a turn that took longer by the clock the rest is longer too (`pause_after`).
REST_SECONDS: Final = 0.001
# The first turn may be longer: most requests need no second one.
FIRST_TURN_SECONDS_MAX: Final = 0.001
# What one response may weigh, about. Kafka's clients refuse 100 MB.
RESPONSE_BYTES_MAX: Final = 64 << 20
TOO_LARGE: Final = "the response would be too large; name fewer resources in one request"
# Requests with thousands of elements that are under way; each may take some tens of megabytes.
_LARGE_REQUESTS_MAX: Final = 2

R = TypeVar("R")
Item = TypeVar("Item")
Answer = TypeVar("Answer", bound=Message)
Response = TypeVar("Response", bound=Message)
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Weight(Generic[Item, Answer]):
    """What an answer adds to the response, and the answer where no room is left for it."""

    of: Callable[[Answer], int]
    refuse: Callable[[Item], Answer]


class Turns:
    def __init__(self, has_others: Callable[[str], bool] = lambda client: False) -> None:
        """`has_others` says whether others than this client use the node right now."""
        self._has_others = has_others
        self.long_answers = LongAnswers()
        self._turn = asyncio.Lock()
        # One at a time: threads that decode and encode compete with the loop.
        self._thread = asyncio.Lock()
        # Of each client one request stands in line for the thread; the others wait here.
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._large_requests = asyncio.Semaphore(_LARGE_REQUESTS_MAX)
        # What is left of requests that are answered, and who frees it.
        self._remains: list[object] = []
        self._remains_of = ""
        self._freeing: asyncio.Task[None] | None = None

    def is_busy(self) -> bool:
        """Are large requests under way?"""
        return self._turn.locked() or self._thread.locked()

    @asynccontextmanager
    async def large_request(self, request: Request) -> AsyncIterator[None]:
        """To be held by a request with thousands of elements. The next may begin when what is left
        of this one is freed, and not before: else their memory adds up.

        Other nodes do not wait: those who hold it may wait for what a follower is about to fetch.
        """
        if request.connection.proved_node_id >= 0:
            yield
            return
        await self._large_requests.acquire()
        try:
            yield
        finally:
            if self._freeing is None:
                self._large_requests.release()
            else:
                self._freeing.add_done_callback(lambda _: self._large_requests.release())

    def answer_each(
        self,
        request: Request,
        items: Iterable[Item],
        answer: Callable[[Item], Answer | Coroutine[Any, Any, Answer]],
        combine: Callable[[list[Answer]], Response | Coroutine[Any, Any, Response]],
        weight: Weight[Item, Answer] | None = None,
        *,
        is_each_small: bool = False,
    ) -> Response | Coroutine[Any, Any, Response]:
        """One response for several items, in order; at once if that does not take long.

        A `combine` that goes through the answers again leaves that to `prepare`. Where each answer
        is known to be small, a request for one that has to wait is not a long one: it takes no
        memory, and may wait for another node."""
        work = _Work(iter(items), answer, weight)
        if work.go_on(FIRST_TURN_SECONDS_MAX) and not work.waits:
            return combine(work.answers)
        if not (is_each_small and work.waits_for_one):
            self.long_answers.begin(request)
        return self._answer_later(request, work, combine)

    async def _answer_later(
        self,
        request: Request,
        work: "_Work[Item, Answer]",
        combine: Callable[[list[Answer]], Response | Coroutine[Any, Any, Response]],
    ) -> Response:
        try:
            rest_seconds = REST_SECONDS
            while not work.is_done:
                worked_seconds = await self._next_turn(request, work.take_turn, rest_seconds)
                rest_seconds = max(REST_SECONDS, pause_after(worked_seconds))
            await work.finish()
        finally:
            work.close()
        response = combine(work.answers)
        return response if isinstance(response, Message) else await response

    async def each(self, request: Request, items: Iterable[Item]) -> AsyncIterator[Item]:
        """The items, with a pause where they take longer than a turn."""
        ends_at = _turn_end(FIRST_TURN_SECONDS_MAX)
        for item in items:
            yield item
            if time.perf_counter() > ends_at:
                ends_at = await self._next_turn(request, _turn_end)

    async def each_in_line(self, request: Request, items: Iterable[Item]) -> AsyncIterator[Item]:
        """As `each`, where the answer may be large: goes on after the first turn when few long
        answers are under way. Not while something is held that one of them may wait for."""
        ends_at = _turn_end(FIRST_TURN_SECONDS_MAX)
        for item in items:
            yield item
            if time.perf_counter() > ends_at:
                await self.long_answers.enter(request)
                ends_at = await self._next_turn(request, _turn_end)

    async def _next_turn(
        self, request: Request, work: Callable[[], R], rest_seconds: float | None = None
    ) -> R:
        self.long_answers.begin(request)
        if rest_seconds is None:
            rest_seconds = REST_SECONDS
        async with self._turn:
            await asyncio.sleep(rest_seconds if self.must_rest(request) else 0)
            stop_if_abandoned(request)
            return work()

    def must_rest(self, request: Request) -> bool:
        """Are there others? A follower waits for nobody: acknowledgements wait for its fetches."""
        connection = request.connection
        return connection.proved_node_id < 0 and self._has_others(connection.client)

    def prepare(
        self,
        request: Request,
        work: Callable[[Each], R],
        then: Callable[[R], Response | Coroutine[Any, Any, Response]],
    ) -> Response | Coroutine[Any, Any, Response]:
        """What `then` makes of the result of `work`.

        `work` depends on the request alone. It gets an `Each`, and iterates with it over what may
        be long."""
        if request.is_long:
            return self._prepare_in_thread(request, work, then)
        return then(work(at_once))

    async def _prepare_in_thread(
        self,
        request: Request,
        work: Callable[[Each], R],
        then: Callable[[R], Response | Coroutine[Any, Any, Response]],
    ) -> Response:
        answer = then(await self.prepared(request, work))
        return answer if isinstance(answer, Message) else await answer

    async def prepared(self, request: Request, work: Callable[[Each], R]) -> R:
        """The result of `work`, as for `prepare`."""
        if not request.is_long:
            return work(at_once)
        found = await self.in_thread_in_line(request, partial(work, self.pace(request)))
        request.prepared = (*request.prepared, found)
        return found

    def pace(self, request: Request) -> Each:
        """How work in a thread goes through many items. Never on the loop."""
        return self._pace(request.connection.client)

    def _pace(self, client: str) -> Each:
        return Pace(partial(self._has_others, client)).each

    async def in_thread(self, work: Callable[[], R]) -> R:
        """For work on what only the request knows, such as its bytes."""
        async with self._thread:
            return await asyncio.get_running_loop().run_in_executor(None, work)

    async def in_thread_in_line(self, request: Request, work: Callable[[], R]) -> R:
        """As `in_thread`; clients take turns, however many requests each of them has. Raises
        ClientGone, before the work begins, if the client has left."""
        line = self._lines.setdefault(request.connection.client, asyncio.Lock())
        async with line, self._thread:
            stop_if_abandoned(request)
            return await asyncio.get_running_loop().run_in_executor(None, work)

    def free_soon(self, request: Request, *remains: object) -> None:
        """Free what nobody else refers to once the caller has returned."""
        self._remains += remains
        self._remains_of = request.connection.client
        if self._freeing is None:
            self._freeing = asyncio.ensure_future(self._free_remains())

    async def _free_remains(self) -> None:
        try:
            while self._remains:
                remains, self._remains = self._remains, []
                await self.in_thread(partial(free, remains, self._pace(self._remains_of)))
        finally:
            self._freeing = None


def stop_if_abandoned(request: Request) -> None:
    if request.connection.is_abandoned():
        raise ClientGone


def _turn_end(seconds: float | None = None) -> float:
    return time.perf_counter() + (TURN_SECONDS_MAX if seconds is None else seconds)


class _Work(Generic[Item, Answer]):
    """Items that are answered one by one. An answer may have to wait for something."""

    def __init__(
        self,
        items: Iterator[Item],
        answer: Callable[[Item], Answer | Coroutine[Any, Any, Answer]],
        weight: Weight[Item, Answer] | None,
    ) -> None:
        self._items = items
        self._answer = answer
        self._weight = weight
        self._bytes_left = RESPONSE_BYTES_MAX
        self.answers: list[Answer] = []
        # Answers that are not there yet: their places, and what they are about.
        self.waits: dict[int, tuple[Item, Coroutine[Any, Any, Answer]]] = {}
        self.is_done = False

    @property
    def waits_for_one(self) -> bool:
        """Is nothing there, and one answer to come?"""
        return self.is_done and len(self.waits) == len(self.answers) == 1

    def go_on(self, seconds: float | None = None) -> bool:
        """Answer until the turn is over; whether all are answered."""
        ends_at = _turn_end(seconds)
        for item in self._items:
            if self._bytes_left < 0 and self._weight is not None:
                self.answers.append(self._weight.refuse(item))
            else:
                self._add(item, self._answer(item))
            if time.perf_counter() > ends_at:
                return False
        self.is_done = True
        return True

    def take_turn(self) -> float:
        """Answer for a turn; how many seconds it took."""
        began = time.perf_counter()
        self.go_on()
        return time.perf_counter() - began

    def _add(self, item: Item, answer: Answer | Coroutine[Any, Any, Answer]) -> None:
        if isinstance(answer, Message):
            self.answers.append(self._weighed(item, answer))
        else:
            self.waits[len(self.answers)] = (item, answer)
            self.answers.append(None)  # type: ignore[arg-type]  # filled in by finish

    def _weighed(self, item: Item, answer: Answer) -> Answer:
        if self._weight is not None:
            self._bytes_left -= self._weight.of(answer)
            if self._bytes_left < 0:
                return self._weight.refuse(item)
        return answer

    async def finish(self) -> None:
        while self.waits:
            place, (item, answer) = self.waits.popitem()
            self.answers[place] = self._weighed(item, await answer)

    def close(self) -> None:
        for _, answer in self.waits.values():
            answer.close()


def once(items: Iterable[Item], key: Callable[[Item], Key]) -> list[Item]:
    """The items without repetitions: of each key the first."""
    return distinct(items, key)[0]


def distinct(items: Iterable[Item], key: Callable[[Item], Key]) -> tuple[list[Item], set[Key]]:
    """The items without repetitions, and the keys that were repeated."""
    found: dict[Key, Item] = {}
    twice: set[Key] = set()
    for item in items:
        its_key = key(item)
        if its_key in found:
            twice.add(its_key)
        else:
            found[its_key] = item
    return list(found.values()), twice


def by_topic(answers: Iterable[tuple[str, Answer]]) -> dict[str, list[Answer]]:
    """Partitions of the same topic together, in order."""
    found: dict[str, list[Answer]] = {}
    for topic, answer in answers:
        found.setdefault(topic, []).append(answer)
    return found
