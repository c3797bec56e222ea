"""Patterns are matched in a thread, a few names at a time, and of one client after the other."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.pattern_matching import PatternMatching
from millstream.broker.requests.pacing import at_once
from millstream.config import load_config
from millstream.coordinators.consumer import pattern as pattern_module
from millstream.coordinators.consumer.pattern import TopicPattern
from millstream.errors import KafkaCode
from millstream.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.broker.handlers.test_groups import find_coordinator
from tests.support.broker import Broker
from tests.support.open_node import OpenNode
from tests.support.raw_client import RawClient

R = TypeVar("R")
_STEP = 5
_TOPICS = {f"{number:03}" + "a" * 200: 1 for number in range(4 * _STEP)}


class Threads:
    """Where names were matched, and where decisions were made."""

    def __init__(self) -> None:
        self.matching: list[int] = []
        self.deciding: set[int] = set()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    seen = Threads()
    matches, submit = TopicPattern.matches, GroupCoordinators.submit

    def note_match(pattern: TopicPattern, text: str) -> bool:
        seen.matching.append(threading.get_ident())
        return matches(pattern, text)

    def note_decision(groups: GroupCoordinators, group_id: str, decide: Any) -> Any:
        seen.deciding.add(threading.get_ident())
        return submit(groups, group_id, decide)

    monkeypatch.setattr(TopicPattern, "matches", note_match)
    monkeypatch.setattr(GroupCoordinators, "submit", note_decision)
    monkeypatch.setattr(pattern_module, "STEP_NAMES_MAX", _STEP)
    return seen


@pytest.fixture
def client(threads: Threads) -> Iterator[RawClient]:
    with Broker(topics=_TOPICS) as broker, RawClient(broker.bootstrap) as connected:
        find_coordinator(connected)
        yield connected


def beat(client: RawClient, member: str, epoch: int, pattern: str | None) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        instance_id=None,
        rack_id=None,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=None,
        subscribed_topic_regex=pattern,
        server_assignor=None,
        topic_partitions=[] if epoch == 0 else None,
    )
    return client.ask(request, 1)


def test_no_name_is_matched_on_the_loop(client: RawClient, threads: Threads) -> None:
    first = beat(client, "m", 0, "(.*a.{30}b|0.*a.{20}a.*)")
    assert first.error_code == KafkaCode.NONE
    assert len(first.assignment.topic_partitions) == len(_TOPICS)
    assert threads.deciding
    assert threads.deciding.isdisjoint(threads.matching)


def test_names_are_matched_once_for_all_members(client: RawClient, threads: Threads) -> None:
    epoch = beat(client, "m", 0, "0.*").member_epoch
    count = len(threads.matching)
    assert count >= len(_TOPICS)
    for _ in range(3):
        assert beat(client, "m", epoch, None).error_code == KafkaCode.NONE
    assert beat(client, "another", 0, "0.*").error_code == KafkaCode.NONE
    assert len(threads.matching) == count


def test_a_pattern_that_is_invalid_is_refused(client: RawClient, threads: Threads) -> None:
    assert beat(client, "m", 0, "(").error_code == KafkaCode.INVALID_REGULAR_EXPRESSION
    epoch = beat(client, "m", 0, "0.*").member_epoch
    assert beat(client, "m", epoch, "(").error_code == KafkaCode.INVALID_REGULAR_EXPRESSION
    assert beat(client, "m", epoch, None).error_code == KafkaCode.NONE


def test_a_stranger_has_nothing_matched(client: RawClient, threads: Threads) -> None:
    assert beat(client, "m", 0, "0.*").error_code == KafkaCode.NONE
    count = len(threads.matching)
    assert beat(client, "stranger", 7, "00.*").error_code == KafkaCode.UNKNOWN_MEMBER_ID
    assert len(threads.matching) == count


async def _steps_of_two_clients(folder: Path) -> list[str]:
    """In which order the steps of one costly pattern and of one other client's are taken."""
    flags = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0"}
    node = OpenNode(load_config(flags=flags), dev=True)
    await node.start()
    steps: list[str] = []
    thread = asyncio.Lock()

    def in_thread_of(client: str) -> Callable[[Callable[[], R]], Awaitable[R]]:
        async def in_thread(work: Callable[[], R]) -> R:
            async with thread:
                steps.append(client)
                await asyncio.sleep(0)
                return work()

        return in_thread

    try:
        matching = PatternMatching(node.node, node.coordination.topics)
        many = [f"t{number}" for number in range(10 * _STEP)]
        matching._node.image.topics.update(dict.fromkeys(many))  # type: ignore[arg-type]

        async def match(client: str, pattern: str) -> None:
            async with matching.turn(client):
                found = await matching.match(pattern, in_thread_of(client), at_once)
                assert set(many) <= set(found.names)

        async with asyncio.TaskGroup() as tasks:
            for number in range(3):
                tasks.create_task(match("hostile", f"t.*|{number}"))
            tasks.create_task(match("other", "t.*"))
    finally:
        for name in many:
            del node.image.topics[name]
        await node.stop()
    assert not matching._queues
    return steps


def test_a_client_with_many_patterns_lets_others_in_after_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pattern_module, "STEP_NAMES_MAX", _STEP)
    steps = asyncio.run(_steps_of_two_clients(tmp_path))
    own = [index for index, client in enumerate(steps) if client == "other"]
    assert all(later - earlier <= 2 for earlier, later in pairwise(own))
    assert steps.count("hostile") == 3 * len(own)
