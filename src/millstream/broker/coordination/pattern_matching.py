"""Which topics the patterns of members match: found in a thread, for one client after the other.

A client that sends many costly patterns waits for them itself. Others wait for one step of them.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from millstream.broker.node.state import NodeState
from millstream.broker.node.topics import Topics
from millstream.coordinators.consumer.pattern import Each, Matching, TopicMatches

R = TypeVar("R")


class InThread(Protocol):
    """Runs work in a thread, one piece after the other."""

    def __call__(self, work: Callable[[], R]) -> Awaitable[R]: ...


@dataclass(slots=True)
class _Queue:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


@dataclass(frozen=True, slots=True)
class Matched:
    """All topics that match, also those that the member may not see."""

    names: list[str]
    topics_version: int


class PatternMatching:
    def __init__(self, node: NodeState, topics: Topics) -> None:
        self._node = node
        self._topics = topics
        self._matches = TopicMatches()
        # Work of a request that was cancelled may still run beside that of the next one.
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = {}

    @asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """When no other pattern of this client is being matched."""
        queue = self._queues.setdefault(client, _Queue())
        queue.users += 1
        try:
            async with queue.lock:
                yield
        finally:
            queue.users -= 1
            if not queue.users:
                del self._queues[client]

    async def match(self, pattern: str, in_thread: InThread, each: Each) -> Matched:
        """Raises KafkaError if the pattern is invalid."""
        names = list(self._node.image.topics)
        version = self._topics.version
        matching = await in_thread(partial(self._begin, pattern, version, names, each))
        while await in_thread(partial(matching.step, each)):
            pass
        found = await in_thread(partial(self._finish, matching, each))
        return Matched(found, matching.topics_version)

    def _begin(self, pattern: str, version: int, names: list[str], each: Each) -> Matching:
        with self._lock:
            return self._matches.begin(pattern, version, names, each)

    def _finish(self, matching: Matching, each: Each) -> list[str]:
        with self._lock:
            return self._matches.finish(matching, each)
