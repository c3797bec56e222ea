"""Which partitions each member's endpoint answers interactive queries for. Pure."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from millstream.cluster.state import ClusterImage
from millstream.coordinators.codecs.streams_changes import Endpoint, TaskAssignment, Tasks
from millstream.coordinators.streams.topology import ConfiguredTopology
from millstream.lazy_dataclass import dataclass

# Topics and partitions that a heartbeat tells, for all endpoints together. A member may ask for
# them with each heartbeat, and clients choose how many topics a task reads.
_PLACES_MAX: Final = 25_000


@dataclass(frozen=True, slots=True)
class EndpointPartitions:
    """Partitions of source topics, by topic."""

    endpoint: Endpoint
    active: dict[str, tuple[int, ...]]
    standby: dict[str, tuple[int, ...]]


def endpoint_partitions(
    members: Iterable[tuple[Endpoint, TaskAssignment]],
    configured: ConfiguredTopology,
    image: ClusterImage,
) -> list[EndpointPartitions] | None:
    """None if they are too many. A client then keeps those that it knows, if any: it runs its
    tasks, and finds no host for interactive queries."""
    found = []
    left = _PLACES_MAX
    for endpoint, tasks in members:
        active = _by_topic(tasks.active, configured, image, left)
        left -= _places(active)
        standby = _by_topic(tasks.standby, configured, image, left)
        left -= _places(standby)
        if left < 0:
            return None
        found.append(EndpointPartitions(endpoint, active, standby))
    return found


def _places(topics: dict[str, tuple[int, ...]]) -> int:
    return len(topics) + sum(map(len, topics.values()))


def _by_topic(
    tasks: Tasks, configured: ConfiguredTopology, image: ClusterImage, places_max: int
) -> dict[str, tuple[int, ...]]:
    """Incomplete where there are more."""
    # Of subtopologies that read the same topic, the last one counts.
    by_name: dict[str, tuple[int, ...]] = {}
    for subtopology_id, partitions in tasks.items():
        subtopology = configured.find(subtopology_id)
        if subtopology is not None:
            by_name.update(dict.fromkeys(subtopology.read_topics, partitions))
    found: dict[str, tuple[int, ...]] = {}
    left = places_max
    for name, partitions in by_name.items():
        topic = image.topics.get(name)
        if topic is not None:
            # A smaller topic of the subtopology has no partition for the later tasks.
            found[name] = partitions[: bisect_left(partitions, len(topic.partitions))]
            left -= 1 + len(found[name])
            if left < 0:
                break
    return found
