"""Reads the cluster every five seconds: the newest facts, and an hour of their history.

Pages show the newest sample, so a page costs the cluster nothing; its own requests are only
those for details. Someone who has just changed something asks for a new sample at once.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from millstream.clock import Clock
from millstream.console.asking import AskFailed, ClusterClient
from millstream.console.facts import ClusterFacts
from millstream.console.history import SAMPLE_SECONDS, History, Rates
from millstream.console.reading import Local, read_cluster

log = logging.getLogger(__name__)

# A cluster so large that a sample takes this share of the time is sampled less often.
_BUSY_SHARE_MAX: Final = 0.1
_EVENTS_MAX: Final = 1_000

# Counters of the node in this process, by the name of their series.
Counters = Callable[[], dict[str, int]]


class Sampler:
    def __init__(
        self,
        client: ClusterClient,
        clock: Clock,
        counters: Counters | None = None,
        local: Local | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._counters = counters
        self._local = local
        self.history = History()
        self._record_rates: Rates[Flow] = Rates()
        self._counter_rates: Rates[str] = Rates()
        self._facts: ClusterFacts | None = None
        # Why the last sample failed; None while they succeed.
        self.failure: str | None = None
        # The newest last.
        self.isr_events: deque[IsrEvent] = deque(maxlen=_EVENTS_MAX)
        self._task: asyncio.Task[None] | None = None
        self._reading: asyncio.Lock = asyncio.Lock()
        # Set and replaced after every sample.
        self._sampled = asyncio.Event()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._sampled.set()

    async def _run(self) -> None:
        while True:
            began = self._clock.monotonic()
            try:
                await self.sample()
            except AskFailed:
                log.debug("no sample: %s", self.failure)
            took = self._clock.monotonic() - began
            await asyncio.sleep(max(SAMPLE_SECONDS - took, took / _BUSY_SHARE_MAX))

    async def facts(self) -> ClusterFacts:
        """The newest. Raises AskFailed while the cluster does not answer."""
        if self._facts is None or self.failure is not None:
            return await self.sample()
        return self._facts

    async def wait_next(self) -> None:
        """Return after the next sample."""
        await self._sampled.wait()

    async def sample(self) -> ClusterFacts:
        """Read everything now. Raises AskFailed."""
        async with self._reading:
            now = self._clock.now_ms() / 1000
            try:
                facts = await read_cluster(self._client, now_ms=int(now * 1000), local=self._local)
            except AskFailed as failed:
                self.failure = str(failed)
                raise
            self.failure = None
            note_unmoved(self._facts, facts)
            if self._facts is not None:
                self.isr_events.extend(isr_changes(self._facts, facts))
            self._facts = facts
            self._note(now, facts)
        self._sampled.set()
        self._sampled = asyncio.Event()
        return facts

    def _note(self, now: float, facts: ClusterFacts) -> None:
        values = record_rates(facts, self._record_rates.take(now, offset_counts(facts)))
        if self._counters is not None:
            values.update(self._counter_rates.take(now, self._counters()))
        values["cluster.bytes"] = sum(topic.size_bytes for topic in facts.topics.values())
        for group in facts.groups.values():
            values[f"group.{group.group_id}.lag"] = facts.group_lag(group)
        self.history.add(now, values)


@dataclass(frozen=True, slots=True)
class IsrEvent:
    """The leader or the in-sync replicas of a partition changed between two samples."""

    at_ms: int
    topic: str
    partition: int
    leader_before: int
    leader: int
    leader_epoch: int
    isr_before: list[int]
    isr: list[int]

    def is_of(self, topic: str, partition: int) -> bool:
        return (self.topic, self.partition) == (topic, partition)


def note_unmoved(before: ClusterFacts | None, after: ClusterFacts) -> None:
    """How long each group has had the same commits, as far as the console has seen."""
    for group in after.groups.values():
        known = None if before is None else before.groups.get(group.group_id)
        is_same = known is not None and known.committed == group.committed
        group.unmoved_since_ms = (
            known.unmoved_since_ms if is_same and known is not None else after.taken_at_ms
        )


def isr_changes(before: ClusterFacts, after: ClusterFacts) -> Iterator[IsrEvent]:
    for topic in after.topics.values():
        known = before.topics.get(topic.name)
        if known is None:
            continue
        for old, new in zip(known.partitions, topic.partitions, strict=False):
            if (old.leader, old.isr) != (new.leader, new.isr):
                yield IsrEvent(
                    after.taken_at_ms,
                    topic.name,
                    new.index,
                    old.leader,
                    new.leader,
                    new.leader_epoch,
                    old.isr,
                    new.isr,
                )


# A topic, and the group that reads it; None for those who write it.
Flow = tuple[str, str | None]


def offset_counts(facts: ClusterFacts) -> dict[Flow, int]:
    """Records written to each topic, and read from it by each group: counters that only grow.

    A topic with a partition whose end is unknown is left out: its count would fall and then
    rise by years of records.
    """
    counts: dict[Flow, int] = {}
    for topic in facts.topics.values():
        if all(one.end_offset >= 0 for one in topic.partitions):
            counts[topic.name, None] = sum(one.end_offset for one in topic.partitions)
    for group in facts.groups.values():
        for where, offset in group.committed.items():
            flow = (where.topic, group.group_id)
            counts[flow] = counts.get(flow, 0) + offset
    return counts


def record_rates(facts: ClusterFacts, flows: Mapping[Flow, float]) -> dict[str, float]:
    """The series of each topic and of the cluster, without the internal topics' writes."""
    values: dict[str, float] = {}
    if flows:
        values = {"cluster.records_in": 0.0, "cluster.records_out": 0.0}
    for (topic, group_id), rate in flows.items():
        kind = "records_in" if group_id is None else "records_out"
        name = f"topic.{topic}.{kind}"
        values[name] = values.get(name, 0.0) + rate
        known = facts.topics.get(topic)
        if known is not None and not known.is_internal:
            values[f"cluster.{kind}"] += rate
    return values
