"""Long work leaves the loop to others, ends with its client, and its answer has a bound."""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.broker.network.connection import ClientGone
from millstream.broker.requests import turns as turns_module
from millstream.broker.requests.long_answers import UNDER_WAY_MAX
from millstream.broker.requests.pacing import PAUSE_SECONDS_MAX, Each
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns, Weight, by_topic, distinct, once
from millstream.wire.apis.delete_groups import DeletedGroup, DeleteGroupsResponse


def running(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test in a loop."""

    @wraps(test)
    def run(*values: Any, **fixtures: Any) -> None:
        asyncio.run(test(*values, **fixtures))

    return run


class FakeConnection:
    has_left = False
    proved_node_id = -1
    client = "10.0.0.1"

    def is_abandoned(self) -> bool:
        return self.has_left


@pytest.fixture
def request_of() -> Request:
    return Request(SimpleNamespace(api_key=3), FakeConnection())  # type: ignore[arg-type]


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every item takes longer than a turn."""
    monkeypatch.setattr(turns_module, "TURN_SECONDS_MAX", -1)
    monkeypatch.setattr(turns_module, "FIRST_TURN_SECONDS_MAX", -1)
    monkeypatch.setattr(turns_module, "REST_SECONDS", 0)


def answer(name: str) -> DeletedGroup:
    return DeletedGroup(group_id=name, error_code=0)


async def answer_after_a_wait(name: str) -> DeletedGroup:
    await asyncio.sleep(0)
    return answer(name)


def combine(answers: list[DeletedGroup]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=answers)


def names(response: DeleteGroupsResponse) -> list[str]:
    return [each.group_id for each in response.results]


@running
async def test_short_work_is_answered_at_once(request_of: Request) -> None:
    found = Turns().answer_each(request_of, ["a", "b"], answer, combine)
    assert isinstance(found, DeleteGroupsResponse)
    assert names(found) == ["a", "b"]
    assert not request_of.is_long


@pytest.mark.usefixtures("no_time")
@running
async def test_the_loop_runs_between_the_turns_of_long_work(request_of: Request) -> None:
    seen: list[str] = []

    def note(name: str) -> DeletedGroup:
        seen.append(name)
        return answer(name)

    found = Turns().answer_each(request_of, "abcdef", note, combine)
    assert asyncio.iscoroutine(found)
    assert seen == ["a"]
    task = asyncio.ensure_future(found)
    while len(seen) < 4:
        before = len(seen)
        await asyncio.sleep(0)
        assert len(seen) - before <= 1
    assert names(await task) == list("abcdef")
    assert request_of.is_long


@pytest.mark.usefixtures("no_time")
@running
async def test_requests_take_turns_with_each_other(request_of: Request) -> None:
    turns = Turns()
    seen: list[str] = []

    async def work(name: str) -> None:
        async for _ in turns.each(request_of, range(10)):
            seen.append(name)

    await asyncio.gather(work("a"), work("b"))
    assert seen[:10] in (["a", "b"] * 5, ["b", "a"] * 5)


@pytest.mark.usefixtures("no_time")
@running
async def test_work_ends_when_its_client_has_left(request_of: Request) -> None:
    seen: list[str] = []

    def leave(name: str) -> DeletedGroup:
        seen.append(name)
        if name == "b":
            request_of.connection.has_left = True  # type: ignore[attr-defined]
        return answer(name)

    found: Any = Turns().answer_each(request_of, "abcdef", leave, combine)
    with pytest.raises(ClientGone):
        await found
    assert seen == ["a", "b"]


@running
async def test_answers_that_wait_keep_their_places(request_of: Request) -> None:
    def mixed(name: str) -> DeletedGroup | Coroutine[Any, Any, DeletedGroup]:
        return answer_after_a_wait(name) if name in "bd" else answer(name)

    found: Any = Turns().answer_each(request_of, "abcd", mixed, combine)
    assert names(await found) == list("abcd")


@running
async def test_one_small_answer_that_waits_keeps_no_other_request_waiting() -> None:
    """It may wait for seconds, for a group's commit: other groups are asked about meanwhile."""
    turns = Turns()
    goes_on = asyncio.Event()

    def a_request() -> Request:
        return Request(SimpleNamespace(api_key=9), FakeConnection())  # type: ignore[arg-type]

    async def wait(name: str) -> DeletedGroup:
        await goes_on.wait()
        return answer(name)

    async def one(request: Request) -> DeleteGroupsResponse:
        found: Any = turns.answer_each(request, ["a"], wait, combine, is_each_small=True)
        response: DeleteGroupsResponse = await found
        return response

    requests = [a_request() for _ in range(UNDER_WAY_MAX)]
    waiting = [asyncio.ensure_future(one(request)) for request in requests]
    await asyncio.sleep(0)
    assert not turns.long_answers.must_wait(a_request())
    goes_on.set()
    for request, task in zip(requests, waiting, strict=True):
        assert names(await task) == ["a"]
        assert not request.is_long


@pytest.mark.parametrize(("wanted", "is_each_small"), [("a", False), ("ab", True)])
@running
async def test_answers_that_waited_are_long_if_they_are_several_or_may_be_large(
    request_of: Request, wanted: str, is_each_small: bool
) -> None:
    found: Any = Turns().answer_each(
        request_of, wanted, answer_after_a_wait, combine, is_each_small=is_each_small
    )
    assert request_of.is_long
    assert names(await found) == list(wanted)


@pytest.mark.parametrize("give", [answer, answer_after_a_wait])
@running
async def test_what_has_no_room_in_the_response_is_refused(request_of: Request, give: Any) -> None:
    def refuse(name: str) -> DeletedGroup:
        return DeletedGroup(group_id=name, error_code=42)

    weight = Weight(lambda each: turns_module.RESPONSE_BYTES_MAX // 2, refuse)
    found: Any = Turns().answer_each(request_of, "abcd", give, combine, weight)
    response = found if isinstance(found, DeleteGroupsResponse) else await found
    assert names(response) == list("abcd")
    assert sorted(each.error_code for each in response.results) == [0, 0, 42, 42]


def test_repetitions() -> None:
    assert once([("a", 1), ("b", 2), ("a", 3)], key=lambda each: each[0]) == [("a", 1), ("b", 2)]
    assert distinct("abaac", key=str.upper) == (["a", "b", "c"], {"A"})


def test_partitions_of_a_topic_come_together() -> None:
    a, b, c = answer("a"), answer("b"), answer("c")
    assert by_topic([("t", a), ("u", b), ("t", c)]) == {"t": [a, c], "u": [b]}


@running
async def test_a_large_request_is_prepared_in_a_thread(request_of: Request) -> None:
    turns = Turns()
    threads = []

    def work(each: Each) -> list[str]:
        threads.append(threading.current_thread())
        return list(each(["a", "b"]))

    def then(found: list[str]) -> DeleteGroupsResponse:
        threads.append(threading.current_thread())
        return combine([answer(name) for name in found])

    async def then_later(found: list[str]) -> DeleteGroupsResponse:
        return then(found)

    here = threading.current_thread()
    at_once = turns.prepare(request_of, work, then)
    assert isinstance(at_once, DeleteGroupsResponse)
    assert await turns.prepared(request_of, work) == ["a", "b"]
    assert threads == [here, here, here]
    request_of.is_long = True
    for each in (then, then_later):
        threads.clear()
        later = turns.prepare(request_of, work, each)
        assert not isinstance(later, DeleteGroupsResponse)
        assert names(await later) == ["a", "b"]
        assert threads[0] is not here
        assert threads[1] is here
    threads.clear()
    assert await turns.prepared(request_of, work) == ["a", "b"]
    assert threads[0] is not here


@running
async def test_clients_take_turns_for_the_thread() -> None:
    turns = Turns()
    done: list[str] = []

    def request_from(client: str) -> Request:
        connection = FakeConnection()
        connection.client = client
        return Request(SimpleNamespace(api_key=3), connection)  # type: ignore[arg-type]

    def work_of(client: str) -> Coroutine[Any, Any, None]:
        return turns.in_thread_in_line(request_from(client), lambda: done.append(client))

    await asyncio.gather(*(work_of(client) for client in "aaaab"))
    assert done == ["a", "b", "a", "a", "a"]
    assert not turns._lines


@running
async def test_nothing_is_prepared_for_a_client_that_has_left(request_of: Request) -> None:
    turns = Turns()
    connection = request_of.connection
    done: list[int] = []
    async with turns._thread:
        waiting = asyncio.ensure_future(turns.in_thread_in_line(request_of, lambda: done.append(1)))
        await asyncio.sleep(0)
        connection.has_left = True  # type: ignore[attr-defined]
    with pytest.raises(ClientGone):
        await waiting
    request_of.is_long = True
    with pytest.raises(ClientGone):
        await turns.prepared(request_of, lambda each: done.append(2))
    assert not done


@pytest.mark.usefixtures("no_time")
@running
async def test_long_answers_may_be_combined_in_a_thread(request_of: Request) -> None:
    turns = Turns()
    threads = []

    def reverse(answers: list[DeletedGroup]) -> Any:
        def work(each: Each) -> list[DeletedGroup]:
            threads.append(threading.current_thread())
            return list(each(answers))[::-1]

        return turns.prepare(request_of, work, combine)

    found: Any = turns.answer_each(request_of, "abc", answer, reverse)
    assert names(await found) == ["c", "b", "a"]
    assert threads[0] is not threading.current_thread()
    assert request_of.prepared == ([answer("c"), answer("b"), answer("a")],)


@running
async def test_what_is_left_of_a_request_is_freed_in_a_thread(request_of: Request) -> None:
    turns = Turns()
    where: list[threading.Thread] = []
    remains = [answer(str(number)) for number in range(1_000)]
    for each in remains:
        weakref.finalize(each, lambda: where.append(threading.current_thread()))
    turns.free_soon(request_of, remains)
    del remains, each
    assert not where
    assert turns._freeing is not None
    await turns._freeing
    assert len(where) == 1_000
    assert threading.current_thread() not in where


@running
async def test_a_large_request_ends_when_what_is_left_of_it_is_freed(
    request_of: Request,
) -> None:
    turns = Turns()
    freed: list[object] = []
    for _ in range(2):
        async with turns.large_request(request_of):
            remains = [answer("left")] * 2
            weakref.finalize(remains[0], freed.append, "left")
            turns.free_soon(request_of, remains)
            del remains
    assert not freed
    async with turns.large_request(request_of):
        assert freed == ["left", "left"]
    async with turns.large_request(request_of), turns.large_request(request_of):
        pass


@running
async def test_another_node_waits_for_no_large_requests(request_of: Request) -> None:
    """They may wait for records to be replicated, and it may be a follower."""
    turns = Turns()
    follower = Request(request_of.header, SimpleNamespace(proved_node_id=2))  # type: ignore[arg-type]
    async with (
        asyncio.timeout(10),
        turns.large_request(request_of),
        turns.large_request(request_of),
        turns.large_request(follower),
    ):
        pass


@pytest.mark.usefixtures("no_time")
@running
async def test_few_large_answers_go_on_at_a_time(request_of: Request) -> None:
    """Nobody knows of an answer that is awaited that it is large before its first turn is over, so
    all those that arrive in one moment begin."""
    turns = Turns()
    seen: list[int] = []
    may_end = asyncio.Event()

    async def show(number: int) -> None:
        request = Request(request_of.header, request_of.connection)
        async for item in turns.each_in_line(request, range(2)):
            if item:
                seen.append(number)
        await may_end.wait()
        turns.long_answers.end(request)

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for number in range(3 * UNDER_WAY_MAX):
            group.create_task(show(number))
        for _ in range(100):
            await asyncio.sleep(0)
        assert seen == list(range(UNDER_WAY_MAX))
        may_end.set()
    assert seen == list(range(3 * UNDER_WAY_MAX))


@running
async def test_the_loop_is_left_to_others_for_longer_than_a_turn(
    request_of: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        rests.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    monkeypatch.setattr(turns_module, "FIRST_TURN_SECONDS_MAX", -1)
    monkeypatch.setattr(turns_module, "TURN_SECONDS_MAX", -1)
    found = [item async for item in Turns(lambda client: True).each(request_of, range(5))]
    assert found == [0, 1, 2, 3, 4]
    assert rests == [turns_module.REST_SECONDS] * 5
    assert turns_module.REST_SECONDS >= 0.001
    rests.clear()
    assert [item async for item in Turns(lambda client: False).each(request_of, range(3))] == [
        0,
        1,
        2,
    ]
    # Followers do not wait for anybody.
    request_of.connection.proved_node_id = 2
    assert [item async for item in Turns(lambda client: True).each(request_of, range(3))] == [
        0,
        1,
        2,
    ]
    assert rests == [0] * 6


@running
async def test_a_turn_that_took_longer_by_the_clock_is_followed_by_a_longer_rest(
    request_of: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    rests: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        rests.append(seconds)
        await sleep(0)

    def slow(name: str) -> DeletedGroup:
        nonlocal now
        now += 0.005 if len(rests) < 2 else 1
        return answer(name)

    monkeypatch.setattr(asyncio, "sleep", note)
    monkeypatch.setattr(turns_module.time, "perf_counter", lambda: now)  # type: ignore[attr-defined]
    later = Turns(lambda client: True).answer_each(request_of, "abcd", slow, combine)
    assert not isinstance(later, DeleteGroupsResponse)
    assert names(await later) == list("abcd")
    assert rests == pytest.approx(
        [turns_module.REST_SECONDS, 0.01, PAUSE_SECONDS_MAX, PAUSE_SECONDS_MAX]
    )
