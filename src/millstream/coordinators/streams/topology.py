"""The tasks and internal topics of a topology, given the topics that exist. Pure.

    repartition topics  as many partitions as the topology says, or as the largest source of the
                        subtopology that writes them; co-partitioned topics get the same number
    changelog topics    as many partitions as their subtopology has tasks
    tasks               one per partition of the largest source topic

Until every topic exists with the right number of partitions, nobody gets a task.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import Final

from millstream.cluster.state import ClusterImage
from millstream.coordinators.codecs.streams_changes import (
    CopartitionGroup,
    InternalTopic,
    Subtopology,
    Topology,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

# A member may get all tasks; its record, eight bytes a task, must fit into a batch.
TASKS_MAX: Final = 50_000
_NAMES_SHOWN_MAX: Final = 3


class StatusCode(IntEnum):
    """Numbered as in StreamsGroupHeartbeat."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


@dataclass(frozen=True, slots=True)
class Status:
    """Something that a member should know about its group."""

    code: StatusCode
    detail: str


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology whose internal topics have their numbers of partitions."""

    subtopology_id: str
    tasks: int
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[InternalTopic, ...]
    changelog_topics: tuple[InternalTopic, ...]
    # Source topics and repartition source topics, each once: a client may repeat them.
    read_topics: tuple[str, ...]

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelog_topics)


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """`problem` is None when tasks can be assigned; `missing` are the topics to create."""

    topology: Topology
    metadata_hash: int
    # Sorted by their ids; empty while the partitions cannot be told.
    subtopologies: tuple[ConfiguredSubtopology, ...] = ()
    missing: tuple[InternalTopic, ...] = ()
    problem: Status | None = None
    _by_id: dict[str, ConfiguredSubtopology] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self._by_id.update((each.subtopology_id, each) for each in self.subtopologies)

    def find(self, subtopology_id: str) -> ConfiguredSubtopology | None:
        return self._by_id.get(subtopology_id)


class _WrongTopics(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__(status.detail)
        self.status = status


def source_topics(subtopology: Subtopology) -> list[str]:
    """What its tasks read: the application's own topics and repartition topics."""
    return [*subtopology.source_topics, *(t.name for t in subtopology.repartition_source_topics)]


def required_topics(topology: Topology) -> set[str]:
    """Every topic whose partitions matter."""
    return {
        name
        for each in topology.subtopologies
        for name in (*source_topics(each), *(t.name for t in each.changelog_topics))
    }


def named_topics(topology: Topology) -> set[str]:
    """Every topic that the topology names."""
    sinks = {name for each in topology.subtopologies for name in each.repartition_sink_topics}
    return required_topics(topology) | sinks


def is_same(one: Topology | None, other: Topology) -> bool:
    """The order of subtopologies does not matter."""
    if one is None:
        return False
    return one.epoch == other.epoch and set(one.subtopologies) == set(other.subtopologies)


def check_topology(topology: Topology) -> None:
    """Raises KafkaError if no topics could make the topology work."""
    if topology.epoch < 0:
        raise _invalid("The topology's epoch must not be negative.")
    ids = {each.subtopology_id for each in topology.subtopologies}
    if len(ids) < len(topology.subtopologies):
        raise _invalid("Two subtopologies have the same id.")
    for each in topology.subtopologies:
        for topic in each.changelog_topics:
            if topic.partitions != 0:
                raise _invalid(
                    f"Changelog topic {topic.name} must have an undefined partition count, "
                    f"but it is set to {topic.partitions}."
                )
        for topic in each.repartition_source_topics:
            if topic.partitions < 0:
                raise _invalid(f"Repartition topic {topic.name} has {topic.partitions} partitions.")
        if not source_topics(each):
            raise _invalid(f"No source topics found for subtopology {each.subtopology_id}")
        for group in each.copartition_groups:
            _check_positions(each, group)


def _check_positions(subtopology: Subtopology, group: CopartitionGroup) -> None:
    for positions, count in (
        (group.source_topics, len(subtopology.source_topics)),
        (group.repartition_source_topics, len(subtopology.repartition_source_topics)),
    ):
        if not all(0 <= position < count for position in positions):
            raise _invalid(
                f"A copartition group of subtopology {subtopology.subtopology_id} names a source "
                "topic that the subtopology does not have."
            )


def _invalid(text: str) -> KafkaError:
    return KafkaError(KafkaCode.STREAMS_INVALID_TOPOLOGY, text)


def configure(topology: Topology, image: ClusterImage, metadata_hash: int) -> ConfiguredTopology:
    """Raises KafkaError if the partitions of a topic cannot be told at all."""
    try:
        _require_sources(topology, image)
        counts = _PartitionCounts(image)
        _count_repartition_topics(topology, counts)
        _even_out_copartitions(topology, counts)
        subtopologies = _configured(topology, counts)
        missing = _missing(subtopologies, image)
    except _WrongTopics as wrong:
        return ConfiguredTopology(topology, metadata_hash, problem=wrong.status)
    problem = None
    if missing:
        names = _shown(topic.name for topic in missing)
        detail = f"Internal topics are missing: {names}"
        problem = Status(StatusCode.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(topology, metadata_hash, subtopologies, missing, problem)


@dataclass(slots=True)
class _PartitionCounts:
    """Of topics that exist, and of internal topics as decided so far."""

    image: ClusterImage
    decided: dict[str, int] = field(default_factory=dict)

    def find(self, topic: str) -> int | None:
        state = self.image.topics.get(topic)
        return len(state.partitions) if state is not None else self.decided.get(topic)

    def get(self, topic: str) -> int:
        count = self.find(topic)
        if count is None:
            raise _invalid(f"The number of partitions of {topic} cannot be determined.")
        return count


def _require_sources(topology: Topology, image: ClusterImage) -> None:
    missing = {
        name
        for each in topology.subtopologies
        for name in each.source_topics
        if name not in image.topics
    }
    if missing:
        detail = f"Source topics {_shown(missing)} are missing."
        raise _WrongTopics(Status(StatusCode.MISSING_SOURCE_TOPICS, detail))


def _count_repartition_topics(topology: Topology, counts: _PartitionCounts) -> None:
    """A subtopology may read what another writes: decide until nothing is left.

    Rounds over the subtopologies, in their order: one writes its sinks as soon as one of its
    sources is decided, with the largest that is decided by then. A subtopology has its turn
    once, and a topic is passed on to its readers once: a client chooses the topology.
    """
    subtopologies = topology.subtopologies
    decided, readers = _fixed_partitions(topology), _readers(topology)
    # The largest source of each subtopology so far.
    largest = [_largest_source(each, decided, counts.image) for each in subtopologies]
    # Those that can write, by the round in which they do.
    ready = [(1, number) for number, count in enumerate(largest) if count is not None]
    while ready:
        turn, number = heapq.heappop(ready)
        for sink in subtopologies[number].repartition_sink_topics:
            count = largest[number]
            assert count is not None
            if sink in decided:
                continue
            decided[sink] = count
            for reader in readers.get(sink, ()):
                known = largest[reader]
                if known is None:
                    # The round has passed the readers that come before the writer.
                    heapq.heappush(ready, (turn + (reader < number), reader))
                largest[reader] = count if known is None else max(known, count)
    _require_all(topology, decided, largest)
    counts.decided.update(decided)


def _fixed_partitions(topology: Topology) -> dict[str, int]:
    return {
        topic.name: topic.partitions
        for each in topology.subtopologies
        for topic in each.repartition_source_topics
        if topic.partitions != 0
    }


def _readers(topology: Topology) -> dict[str, list[int]]:
    """The subtopologies that read a repartition topic, by their numbers."""
    found: dict[str, list[int]] = {}
    for number, each in enumerate(topology.subtopologies):
        for topic in each.repartition_source_topics:
            found.setdefault(topic.name, []).append(number)
    return found


def _require_all(
    topology: Topology, decided: Mapping[str, int], largest: Sequence[int | None]
) -> None:
    """Everything that is written or read has been decided."""
    fixed = _fixed_partitions(topology)
    for each, count in zip(topology.subtopologies, largest, strict=True):
        if count is None and any(sink not in fixed for sink in each.repartition_sink_topics):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. There may be "
                "loops in the topology that cannot be resolved."
            )
    for each in topology.subtopologies:
        if any(topic.name not in decided for topic in each.repartition_source_topics):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics, because a "
                "repartition source topic is never used as a sink topic."
            )


def _largest_source(
    subtopology: Subtopology, decided: Mapping[str, int], image: ClusterImage
) -> int | None:
    found = [
        decided[topic.name]
        for topic in subtopology.repartition_source_topics
        if topic.name in decided
    ]
    found += [len(image.topics[n].partitions) for n in subtopology.source_topics]
    return max(found, default=None)


def _even_out_copartitions(topology: Topology, counts: _PartitionCounts) -> None:
    fixed = {
        topic.name: topic.partitions != 0
        for each in topology.subtopologies
        for topic in each.repartition_source_topics
    }
    for each in topology.subtopologies:
        for group in each.copartition_groups:
            names = {each.source_topics[position] for position in group.source_topics}
            names |= {
                each.repartition_source_topics[position].name
                for position in group.repartition_source_topics
            }
            if names:
                _even_out(names, fixed, counts)


def _even_out(names: set[str], fixed: Mapping[str, bool], counts: _PartitionCounts) -> None:
    """The application's own topics decide; among repartition topics alone, those whose number
    of partitions is fixed; else the largest."""
    own = sorted(names - fixed.keys())
    repartition = sorted(names & fixed.keys())
    deciding = own or [name for name in repartition if fixed[name]]
    if deciding:
        wanted = counts.get(deciding[0])
        if any(counts.get(name) != wanted for name in deciding):
            shown = ", ".join(f"{name}={counts.get(name)}" for name in deciding)
            raise _wrongly_partitioned(
                f"Following topics do not have the same number of partitions: [{shown}]"
            )
    else:
        wanted = max(counts.get(name) for name in repartition)
    for name in repartition:
        if fixed[name] and counts.get(name) != wanted:
            raise _wrongly_partitioned(
                f"Number of partitions [{counts.get(name)}] of repartition topic [{name}] doesn't "
                f"match number of partitions [{wanted}] of the source topic."
            )
        counts.decided[name] = wanted


def _wrongly_partitioned(detail: str) -> _WrongTopics:
    return _WrongTopics(Status(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail))


def _configured(topology: Topology, counts: _PartitionCounts) -> tuple[ConfiguredSubtopology, ...]:
    found = []
    for each in sorted(topology.subtopologies, key=lambda s: s.subtopology_id):
        tasks = max(counts.get(name) for name in source_topics(each))
        found.append(
            ConfiguredSubtopology(
                each.subtopology_id,
                tasks,
                each.source_topics,
                each.repartition_sink_topics,
                tuple(
                    _with_partitions(topic, counts.decided[topic.name])
                    for topic in each.repartition_source_topics
                ),
                tuple(_with_partitions(topic, tasks) for topic in each.changelog_topics),
                tuple(dict.fromkeys(source_topics(each))),
            )
        )
    if sum(each.tasks for each in found) > TASKS_MAX:
        raise _invalid(f"The topology has more than {TASKS_MAX} tasks.")
    return tuple(found)


def _with_partitions(topic: InternalTopic, partitions: int) -> InternalTopic:
    return InternalTopic(topic.name, partitions, topic.replication_factor, topic.configs)


def _missing(
    subtopologies: Iterable[ConfiguredSubtopology], image: ClusterImage
) -> tuple[InternalTopic, ...]:
    wanted = {
        topic.name: topic
        for each in subtopologies
        for topic in (*each.repartition_source_topics, *each.changelog_topics)
    }
    for name, topic in wanted.items():
        state = image.topics.get(name)
        if state is not None and len(state.partitions) != topic.partitions:
            raise _wrongly_partitioned(
                f"Existing topic {name} has different number of partitions: expected "
                f"{topic.partitions}, found {len(state.partitions)}"
            )
    return tuple(wanted[name] for name in sorted(wanted) if name not in image.topics)


def _shown(names: Iterable[str]) -> str:
    found = sorted(names)
    more = len(found) - _NAMES_SHOWN_MAX
    text = ", ".join(found[:_NAMES_SHOWN_MAX])
    return f"{text} and {more} additional topics" if more > 0 else text
