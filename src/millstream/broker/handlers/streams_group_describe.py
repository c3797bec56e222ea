"""StreamsGroupDescribe (89), version 0: topologies, members, their current and target tasks."""

from collections.abc import Coroutine, Sequence
from typing import Any, Final

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.requests.group_descriptions import Kind, describe_groups
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.requests.turns import Turns
from millstream.coordinators.codecs.streams_changes import (
    InternalTopic,
    Subtopology,
    TaskAssignment,
    Tasks,
)
from millstream.coordinators.groups import requests
from millstream.coordinators.streams.group import StreamsGroup, StreamsMember
from millstream.coordinators.streams.tasks import without_epochs
from millstream.coordinators.streams.topology import ConfiguredSubtopology
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.streams_group_describe import (
    DescribedEndpoint,
    DescribedKeyValue,
    DescribedStreamsMember,
    DescribedSubtopology,
    DescribedTaskIds,
    DescribedTasks,
    DescribedTopicInfo,
    DescribedTopology,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupDescription,
)

_HIDDEN: Final = "The described group uses topics that the client is not authorized to describe."


def handle(
    groups: GroupCoordinators,
    turns: Turns,
    permissions: Permissions,
    request: Request,
    body: StreamsGroupDescribeRequest,
) -> StreamsGroupDescribeResponse | Coroutine[Any, Any, StreamsGroupDescribeResponse]:
    return describe_groups(
        groups,
        turns,
        permissions,
        request,
        body,
        _KIND,
        lambda found: StreamsGroupDescribeResponse(groups=found),
    )


def _weight(group: StreamsGroupDescription) -> int:
    return (
        200
        + sum(100 + len(name) for name in _names(group))
        + sum(
            400
            + sum(
                20 + 4 * len(row.partitions)
                for tasks in (member.assignment, member.target_assignment)
                for row in (*tasks.active_tasks, *tasks.standby_tasks, *tasks.warmup_tasks)
            )
            for member in group.members
        )
    )


def _names(group: StreamsGroupDescription) -> set[str]:
    return set() if group.topology is None else _topics(group.topology)


def _topics(topology: DescribedTopology) -> set[str]:
    return {
        name
        for each in topology.subtopologies or ()
        for name in (
            *each.source_topics,
            *each.repartition_sink_topics,
            *(topic.name for topic in each.repartition_source_topics),
            *(topic.name for topic in each.state_changelog_topics),
        )
    }


def _answer(group: StreamsGroup, operations: int) -> StreamsGroupDescription:
    return StreamsGroupDescription(
        error_code=KafkaCode.NONE,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        topology=_topology(group),
        members=[
            _member(member_id, member, group.target.get(member_id, TaskAssignment()))
            for member_id, member in group.members.items()
        ],
        authorized_operations=operations,
    )


def _topology(group: StreamsGroup) -> DescribedTopology | None:
    """With the numbers of partitions once all topics are right, else as the client sent it."""
    if group.topology is None:
        return None
    configured = group.configured
    parts: Sequence[Subtopology | ConfiguredSubtopology] = group.topology.subtopologies
    if configured is not None and configured.problem is None:
        parts = configured.subtopologies
    return DescribedTopology(
        epoch=group.topology.epoch,
        subtopologies=[
            _subtopology(each) for each in sorted(parts, key=lambda part: part.subtopology_id)
        ],
    )


def _subtopology(each: Subtopology | ConfiguredSubtopology) -> DescribedSubtopology:
    return DescribedSubtopology(
        subtopology_id=each.subtopology_id,
        source_topics=sorted(each.source_topics),
        repartition_sink_topics=sorted(each.repartition_sink_topics),
        state_changelog_topics=_infos(each.changelog_topics),
        repartition_source_topics=_infos(each.repartition_source_topics),
    )


def _infos(topics: Sequence[InternalTopic]) -> list[DescribedTopicInfo]:
    return [
        DescribedTopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[DescribedKeyValue(key=key, value=value) for key, value in topic.configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(
    member_id: str, member: StreamsMember, target: TaskAssignment
) -> DescribedStreamsMember:
    stored = member.stored
    endpoint = stored.endpoint
    return DescribedStreamsMember(
        member_id=member_id,
        member_epoch=member.current.epoch,
        instance_id=stored.instance_id,
        rack_id=stored.rack_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        topology_epoch=stored.topology_epoch,
        process_id=stored.process_id,
        user_endpoint=None
        if endpoint is None
        else DescribedEndpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[DescribedKeyValue(key=key, value=value) for key, value in stored.client_tags],
        task_offsets=[],
        task_end_offsets=[],
        assignment=_tasks(without_epochs(member.current.assigned)),
        target_assignment=_tasks(target),
    )


def _tasks(tasks: TaskAssignment) -> DescribedTasks:
    return DescribedTasks(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_ids(tasks: Tasks) -> list[DescribedTaskIds]:
    return [
        DescribedTaskIds(subtopology_id=subtopology_id, partitions=list(partitions))
        for subtopology_id, partitions in tasks.items()
    ]


def _refuse(group_id: str, error: KafkaError) -> StreamsGroupDescription:
    return StreamsGroupDescription(
        error_code=error.code,
        error_message=error.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        members=[],
    )


_KIND: Final = Kind(
    find=lambda state, env, group_id: requests.describe_streams(state, group_id, env),
    describe=_answer,
    refuse=_refuse,
    topics=_names,
    hidden=_HIDDEN,
    weight=_weight,
)
