"""What every page of one console can use."""

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.clock import Clock
from millstream.console.asking import ClusterClient
from millstream.console.display import Display
from millstream.console.facts import ClusterFacts, PartitionFacts, TopicFacts
from millstream.console.node import LocalNode
from millstream.console.sampling import Sampler

if TYPE_CHECKING:
    from millstream.console.schemas import Schemas

# Texts about what was done, until the next page shows them.
_NOTES_MAX: Final = 100


class NotFound(Exception):
    """No such topic, partition or group."""


class BadInput(Exception):
    """What was entered cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Note:
    level: str
    text: str


class Notes:
    """What was done, shown once on the page that follows."""

    def __init__(self) -> None:
        self._notes: OrderedDict[str, Note] = OrderedDict()

    def add(self, text: str, level: str = "done") -> str:
        if len(self._notes) >= _NOTES_MAX:
            self._notes.popitem(last=False)
        key = secrets.token_urlsafe(8)
        self._notes[key] = Note(level, text)
        return key

    def take(self, key: str) -> Note | None:
        return self._notes.pop(key, None)


class Console:
    def __init__(
        self,
        client: ClusterClient,
        sampler: Sampler,
        clock: Clock,
        *,
        node: LocalNode | None = None,
        is_read_only: bool = False,
        pipeline_home: Path | None = None,
        user: str | None = None,
        schemas: "Schemas | None" = None,
    ) -> None:
        self.client = client
        self.sampler = sampler
        self.clock = clock
        # None where the console runs alone: panels that need the node's files are absent.
        self.node = node
        self.is_read_only = is_read_only
        # Where a pipeline keeps its status, tables and reports; it need not exist yet.
        self.pipeline_home = pipeline_home
        # Who has logged in; None where nobody needs to.
        self.user = user
        # Decodes records through a registry; None without one.
        self._schemas = schemas
        self.token = secrets.token_urlsafe(32)
        self.notes = Notes()
        # Set when the server stops, so that open streams end.
        self.stopping = asyncio.Event()

    def start(self) -> None:
        self.sampler.start()

    async def stop(self) -> None:
        """Streams end; requests that are being answered may still ask the cluster."""
        self.stopping.set()
        await self.sampler.stop()

    def close(self) -> None:
        """Nothing is answered any more."""
        self.client.close()

    def display(self, as_: str) -> Display:
        return Display(as_, self._schemas)

    async def facts(self) -> ClusterFacts:
        return await self.sampler.facts()

    async def topic(self, name: str) -> TopicFacts:
        found = (await self.facts()).topics.get(name)
        if found is None:
            # It may have been created a moment ago.
            found = (await self.sampler.sample()).topics.get(name)
        if found is None:
            raise NotFound(f"There is no topic {name}.")
        return found

    async def partition(self, name: str, index: int) -> PartitionFacts:
        topic = await self.topic(name)
        if not 0 <= index < len(topic.partitions):
            raise NotFound(f"Topic {name} has no partition {index}.")
        return topic.partitions[index]
