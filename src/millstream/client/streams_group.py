"""What members of a streams group read, from the answer that describes the group. Pure."""

from collections.abc import Mapping

from millstream.model import TopicPartition
from millstream.wire.apis.streams_group_describe import (
    DescribedTopology,
    StreamsGroupDescription,
)


def source_topics(group: StreamsGroupDescription) -> set[str]:
    """The topics that tasks read: the application's own and repartition topics."""
    return {name for names in _sources(group.topology).values() for name in names}


def read_partitions(
    group: StreamsGroupDescription, partition_counts: Mapping[str, int]
) -> dict[str, tuple[TopicPartition, ...]]:
    """The partitions that each member's active tasks read, by member.

    A task reads the partition of its number in every source topic of its subtopology; topics
    that have fewer partitions, or are not in `partition_counts`, have none for it.
    """
    sources = _sources(group.topology)
    return {
        member.member_id: tuple(
            TopicPartition(name, partition)
            for tasks in member.assignment.active_tasks
            for name in sources.get(tasks.subtopology_id, ())
            for partition in tasks.partitions
            if partition < partition_counts.get(name, 0)
        )
        for member in group.members
    }


def _sources(topology: DescribedTopology | None) -> dict[str, list[str]]:
    """By subtopology."""
    if topology is None:
        return {}
    return {
        each.subtopology_id: [
            *each.source_topics,
            *(topic.name for topic in each.repartition_source_topics),
        ]
        for each in topology.subtopologies or ()
    }
