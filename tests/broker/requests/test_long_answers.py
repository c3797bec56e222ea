"""A client gets a few long answers of one kind at a time; its other requests of that kind wait."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from millstream.broker.requests.long_answers import UNDER_WAY_MAX, LongAnswers
from millstream.broker.requests.request import Request


def request_of(client: str = "10.0.0.1", api_key: int = 3, node_id: int = -1) -> Request:
    header = SimpleNamespace(api_key=api_key)
    connection = SimpleNamespace(client=client, proved_node_id=node_id)
    return Request(header, connection)  # type: ignore[arg-type]


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def with_many_under_way(answers: LongAnswers) -> list[Request]:
    requests = [request_of() for _ in range(UNDER_WAY_MAX)]
    for request in requests:
        assert not answers.must_wait(request)
        answers.begin(request)
    return requests


async def stand(answers: LongAnswers, name: str, seen: list[str], *, is_long: bool) -> Request:
    request = request_of()
    async with answers.in_line(request):
        seen.append(name)
        if is_long:
            answers.begin(request)
    return request


def test_only_requests_of_the_same_kind_and_client_wait() -> None:
    answers = LongAnswers()
    with_many_under_way(answers)
    assert answers.must_wait(request_of())
    assert not answers.must_wait(request_of(api_key=12))
    assert not answers.must_wait(request_of(client="10.0.0.2"))
    # Clients wait for what another node asks.
    assert not answers.must_wait(request_of(node_id=2))


def test_an_answer_counts_once_until_it_ends() -> None:
    answers = LongAnswers()
    first, *_ = with_many_under_way(answers)
    answers.begin(first)
    answers.end(first)
    assert not answers.must_wait(request_of())
    answers.end(first)
    short = request_of()
    answers.end(short)
    answers.begin(first)
    assert answers.must_wait(request_of())


def test_a_request_waits_for_nobody_where_all_have_ended_before_it_stands_in_line() -> None:
    async def test() -> None:
        answers, seen = LongAnswers(), list[str]()
        requests = with_many_under_way(answers)
        assert answers.must_wait(request_of())
        # Its task begins in the next iteration of the loop.
        late = asyncio.ensure_future(stand(answers, "late", seen, is_long=False))
        for request in requests:
            answers.end(request)
        async with asyncio.timeout(10):
            await late
        assert seen == ["late"]
        assert not answers.must_wait(request_of())

    run(test)


def test_the_line_moves_when_a_long_answer_ends_and_past_short_ones() -> None:
    async def test() -> None:
        answers, seen = LongAnswers(), list[str]()
        first, second, *_ = with_many_under_way(answers)
        waiting = [
            asyncio.ensure_future(stand(answers, name, seen, is_long="long" in name))
            for name in ("short", "long", "later")
        ]
        await asyncio.sleep(0.01)
        assert seen == []
        answers.end(first)
        await asyncio.sleep(0.01)
        assert seen == ["short", "long"]
        # One in line is enough for others to stand behind it.
        assert answers.must_wait(request_of())
        answers.end(second)
        await asyncio.gather(*waiting)
        assert seen == ["short", "long", "later"]

    run(test)


def test_a_request_that_is_given_up_in_line_keeps_nobody_waiting() -> None:
    async def test() -> None:
        answers, seen = LongAnswers(), list[str]()
        first, *_ = with_many_under_way(answers)
        gone = asyncio.ensure_future(stand(answers, "gone", seen, is_long=False))
        last = asyncio.ensure_future(stand(answers, "last", seen, is_long=False))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        answers.end(first)
        await last
        assert "gone" not in seen

    run(test)


def test_a_failure_at_the_head_of_the_line_lets_the_next_one_in() -> None:
    async def test() -> None:
        answers, seen = LongAnswers(), list[str]()
        first, *_ = with_many_under_way(answers)

        async def fail() -> None:
            async with answers.in_line(request_of()):
                raise ZeroDivisionError

        failing = asyncio.ensure_future(fail())
        last = asyncio.ensure_future(stand(answers, "last", seen, is_long=False))
        await asyncio.sleep(0)
        answers.end(first)
        await last
        assert isinstance((await asyncio.gather(failing, return_exceptions=True))[0], Exception)
        assert seen == ["last"]

    run(test)


def test_one_that_comes_in_between_keeps_the_line_where_it_is() -> None:
    async def test() -> None:
        answers, seen = LongAnswers(), list[str]()
        first, second, *_ = with_many_under_way(answers)
        called = asyncio.ensure_future(stand(answers, "called", seen, is_long=True))
        last = asyncio.ensure_future(stand(answers, "last", seen, is_long=True))
        await asyncio.sleep(0)
        answers.end(first)
        # Of another kind of handler, which has not asked: before the first in line runs.
        answers.begin(request_of())
        await called
        answers.end(second)
        await asyncio.sleep(0.01)
        assert seen == ["called"]
        answers.end(await called)
        await last
        assert seen == ["called", "last"]

    run(test)
