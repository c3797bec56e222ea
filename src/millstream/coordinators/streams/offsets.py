"""Which member of a streams group may commit an offset. Pure."""

from collections.abc import Iterable

from millstream.coordinators.codecs.streams_changes import CurrentTasks
from millstream.coordinators.streams.group import StreamsGroup
from millstream.coordinators.streams.topology import source_topics
from millstream.errors import KafkaCode, KafkaError


def check_commit(
    group: StreamsGroup, member_id: str, epoch: int, partitions: Iterable[tuple[str, int]]
) -> None:
    """Raises KafkaError. `partitions` are those that the member commits offsets of.

    A member commits before it gives up a task, and may not know its newest epoch yet. So an
    older epoch counts for tasks that the member has had without interruption since then.
    """
    if epoch < 0 and not group.members:
        # Tools commit while the application is stopped.
        return
    member = group.members.get(member_id)
    if member is None:
        raise KafkaError(
            KafkaCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} is not a member of group {group.group_id}.",
        )
    known = member.current.epoch
    if epoch == known:
        return
    if epoch > known:
        raise _stale(f"Received member epoch {epoch} is newer than current member epoch {known}.")
    subtopologies = _subtopologies_by_source(group)
    for topic, partition in partitions:
        subtopology_id = subtopologies.get(topic)
        if subtopology_id is None:
            raise _stale(f"Topic {topic} is not in the topology.")
        since = _assigned_in(member.current, subtopology_id, partition)
        if since is None:
            raise _stale(
                f"Task {subtopology_id}-{partition} is not assigned or pending revocation for "
                "member."
            )
        if epoch < since:
            raise _stale(
                f"Received member epoch {epoch} is older than assignment epoch {since} for task "
                f"{subtopology_id}-{partition}."
            )


def _subtopologies_by_source(group: StreamsGroup) -> dict[str, str]:
    if group.topology is None:
        return {}
    return {
        topic: each.subtopology_id
        for each in group.topology.subtopologies
        for topic in source_topics(each)
    }


def _assigned_in(current: CurrentTasks, subtopology_id: str, partition: int) -> int | None:
    """The epoch since which the member has the active task; None if it has not."""
    for owned in (current.assigned, current.revoking):
        epoch = owned.active.get(subtopology_id, {}).get(partition)
        if epoch is not None:
            return epoch
    return None


def _stale(text: str) -> KafkaError:
    return KafkaError(KafkaCode.STALE_MEMBER_EPOCH, text)
