"""Which partitions each member's endpoint answers interactive queries for. Pure."""

from millstream.cluster.state import ClusterImage
from millstream.coordinators.codecs.streams_changes import CurrentTasks, Endpoint, Tasks
from millstream.coordinators.streams.group import StreamsGroup
from millstream.coordinators.streams.tasks import without_epochs
from millstream.coordinators.streams.topology import ConfiguredTopology
from millstream.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class EndpointPartitions:
    """Partitions of source topics, by topic."""

    endpoint: Endpoint
    active: dict[str, tuple[int, ...]]
    standby: dict[str, tuple[int, ...]]


def endpoint_partitions(
    group: StreamsGroup, configured: ConfiguredTopology, image: ClusterImage, *, without: str
) -> list[EndpointPartitions]:
    """Of the other members that have an endpoint, as the group is now."""
    return [
        partitions_of(member.stored.endpoint, member.current, configured, image)
        for member_id, member in group.members.items()
        if member_id != without and member.stored.endpoint is not None
    ]


def partitions_of(
    endpoint: Endpoint,
    current: CurrentTasks,
    configured: ConfiguredTopology,
    image: ClusterImage,
) -> EndpointPartitions:
    tasks = without_epochs(current.assigned)
    return EndpointPartitions(
        endpoint,
        _by_topic(tasks.active, configured, image),
        _by_topic(tasks.standby, configured, image),
    )


def _by_topic(
    tasks: Tasks, configured: ConfiguredTopology, image: ClusterImage
) -> dict[str, tuple[int, ...]]:
    # Of subtopologies that read the same topic, the last one counts.
    by_name: dict[str, tuple[int, ...]] = {}
    for subtopology_id, partitions in tasks.items():
        subtopology = configured.find(subtopology_id)
        if subtopology is not None:
            by_name.update(dict.fromkeys(subtopology.read_topics, partitions))
    found: dict[str, tuple[int, ...]] = {}
    for name, partitions in by_name.items():
        topic = image.topics.get(name)
        if topic is not None:
            # A smaller topic of the subtopology has no partition for the later tasks.
            found[name] = tuple(p for p in partitions if p < len(topic.partitions))
    return found
