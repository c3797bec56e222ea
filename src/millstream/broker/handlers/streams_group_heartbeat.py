"""StreamsGroupHeartbeat (88), version 0: the entire protocol of streams groups (KIP-1071).

Before the answer leaves, internal topics that the topology lacks are created in the name of the
client; what fails is in the answer's status, and the next heartbeat tries again.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from millstream.broker.coordination.coordinators import GroupCoordinators
from millstream.broker.coordination.member_quota import Caller
from millstream.broker.node.topics import Topics
from millstream.broker.requests.mutations import mutations
from millstream.broker.requests.permissions import Permissions
from millstream.broker.requests.request import Request
from millstream.broker.security.quota_use import ClientQuotas
from millstream.cluster.changes import NewTopic
from millstream.coordinators.codecs.streams_changes import (
    CopartitionGroup,
    Endpoint,
    InternalTopic,
    Subtopology,
    Tasks,
    Topology,
)
from millstream.coordinators.groups import requests
from millstream.coordinators.sizes import optional_texts_bytes, topology_bytes
from millstream.coordinators.streams.group import JOINING_EPOCH
from millstream.coordinators.streams.heartbeat import StreamsHeartbeat, StreamsReply
from millstream.coordinators.streams.tasks import tasks_of
from millstream.coordinators.streams.topology import StatusCode, named_topics
from millstream.errors import KafkaCode, KafkaError
from millstream.model import INTERNAL_TOPICS, topic_name_problem
from millstream.security.acl import ResourceType
from millstream.security.operations import AUTO_CREATE
from millstream.wire.apis.streams_group_heartbeat import (
    StreamsEndpoint,
    StreamsEndpointPartitions,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupStatus,
    StreamsSubtopology,
    StreamsTaskIds,
    StreamsTopicInfo,
    StreamsTopicPartitions,
    StreamsTopology,
)

_PROBLEMS_SHOWN_MAX: Final = 3
# Subtopologies, topics, their options and co-partition groups together.
_TOPOLOGY_SIZE_MAX: Final = 5_000


def handle(
    groups: GroupCoordinators,
    topics: Topics,
    permissions: Permissions,
    quotas: ClientQuotas,
    request: Request,
    body: StreamsGroupHeartbeatRequest,
) -> StreamsGroupHeartbeatResponse | Coroutine[Any, Any, StreamsGroupHeartbeatResponse]:
    try:
        permissions.require(request, ResourceType.GROUP, body.group_id)
        if body.topology is not None:
            _check_size(body.topology)
        heartbeat = _heartbeat(request, body)
        if heartbeat.topology is not None:
            _check_topics(permissions, request, heartbeat.topology)
        _admit(groups, request, heartbeat)
        answer = groups.submit(
            body.group_id, lambda state, env: requests.streams_heartbeat(state, heartbeat, env)
        )
    except KafkaError as error:
        return _refuse(error)
    if isinstance(answer, StreamsReply) and not answer.missing:
        return _answer(answer)
    return _answer_later(topics, permissions, quotas, request, answer)


def _admit(groups: GroupCoordinators, request: Request, heartbeat: StreamsHeartbeat) -> None:
    """Raises KafkaError where the client has no room for what the member brings."""
    caller = Caller(request.connection.client, request.client_host)
    group_id, member_id = heartbeat.group_id, heartbeat.member_id
    size_bytes = _brought_bytes(heartbeat)
    if heartbeat.epoch == JOINING_EPOCH:
        groups.admit_member(
            group_id,
            caller,
            size_bytes,
            member_id=member_id,
            shared_bytes=_new_topology_bytes(groups, heartbeat),
        )
    elif size_bytes:
        groups.admit_change(group_id, caller, size_bytes, member_id=member_id)


def _brought_bytes(heartbeat: StreamsHeartbeat) -> int:
    return optional_texts_bytes(
        heartbeat.instance_id,
        heartbeat.rack_id,
        heartbeat.process_id,
        None if heartbeat.endpoint is None else heartbeat.endpoint.host,
        *(text for tag in heartbeat.client_tags or () for text in tag),
    )


def _new_topology_bytes(groups: GroupCoordinators, heartbeat: StreamsHeartbeat) -> int:
    """The topology of a group is the one that its first member brings."""
    if heartbeat.topology is None or groups.has_topology(heartbeat.group_id):
        return 0
    return topology_bytes(heartbeat.topology)


async def _answer_later(
    topics: Topics,
    permissions: Permissions,
    quotas: ClientQuotas,
    request: Request,
    answer: "StreamsReply | asyncio.Future[StreamsReply]",
) -> StreamsGroupHeartbeatResponse:
    try:
        reply = answer if isinstance(answer, StreamsReply) else await answer
    except KafkaError as error:
        return _refuse(error)
    if not reply.missing:
        return _answer(reply)
    denied = _denied(permissions, request, reply.missing)
    if denied:
        return _answer(reply, f"Unauthorized to CREATE on topics {', '.join(denied)}.")
    return _answer(reply, await _create(topics, quotas, request, reply.missing))


# -- internal topics ------------------------------------------------------------------


def _denied(
    permissions: Permissions, request: Request, missing: Sequence[InternalTopic]
) -> list[str]:
    """The topics that the client may not create; then none is created."""
    if permissions.allows_cluster(request, AUTO_CREATE):
        return []
    return [
        topic.name
        for topic in missing
        if not permissions.allows(request, ResourceType.TOPIC, topic.name, AUTO_CREATE)
    ]


async def _create(
    topics: Topics, quotas: ClientQuotas, request: Request, missing: Sequence[InternalTopic]
) -> str:
    """Create them; returns what failed, for the member's log."""
    try:
        mutations(quotas, request, strict_from=0).take(sum(each.partitions for each in missing))
    except KafkaError as error:
        return f"Creation failed: {error.message}."
    results = await topics.create([_new_topic(each) for each in missing], validate_only=False)
    problems = [
        f"{result.name} ({result.error.message})"
        for result in results
        # Another member's heartbeat may have been faster.
        if result.error is not None and result.error.code is not KafkaCode.TOPIC_ALREADY_EXISTS
    ]
    if not problems:
        return ""
    text = ", ".join(problems[:_PROBLEMS_SHOWN_MAX])
    more = len(problems) - _PROBLEMS_SHOWN_MAX
    return f"Creation failed: {text} and {more} more." if more > 0 else f"Creation failed: {text}."


def _new_topic(topic: InternalTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.partitions,
        # Clients send 0 or -1 for the node's default.
        topic.replication_factor or -1,
        configs=dict(topic.configs),
    )


def _check_size(topology: StreamsTopology) -> None:
    """Raises KafkaError. The topology is compared, stored and configured on the loop."""
    left = _TOPOLOGY_SIZE_MAX
    for each in topology.subtopologies:
        left -= _size(each)
        if left < 0:
            raise KafkaError(
                KafkaCode.STREAMS_INVALID_TOPOLOGY,
                "The topology has too many subtopologies, topics, options of topics and "
                f"co-partition groups; up to {_TOPOLOGY_SIZE_MAX:,} are allowed.",
            )


def _size(subtopology: StreamsSubtopology) -> int:
    size = (
        1
        + len(subtopology.source_topics)
        + len(subtopology.source_topic_regex)
        + len(subtopology.state_changelog_topics)
        + len(subtopology.repartition_sink_topics)
        + len(subtopology.repartition_source_topics)
        + len(subtopology.copartition_groups)
    )
    if size > _TOPOLOGY_SIZE_MAX:
        # Too many as it is: their options need not be counted.
        return size
    with_options = (subtopology.state_changelog_topics, subtopology.repartition_source_topics)
    return size + sum(len(topic.topic_configs) for topics in with_options for topic in topics)


def _check_topics(permissions: Permissions, request: Request, topology: Topology) -> None:
    """Raises KafkaError where the topology names topics that the client cannot use."""
    names = sorted(named_topics(topology))
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        raise KafkaError(
            KafkaCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is "
            "prohibited.",
        )
    invalid = [name for name in names if topic_name_problem(name) is not None]
    if invalid:
        raise KafkaError(
            KafkaCode.STREAMS_INVALID_TOPOLOGY,
            f"Topic names {','.join(invalid)} are not valid topic names.",
        )
    for name in names:
        permissions.require(request, ResourceType.TOPIC, name)


# -- from and to the wire -------------------------------------------------------------


def _heartbeat(request: Request, body: StreamsGroupHeartbeatRequest) -> StreamsHeartbeat:
    endpoint, tags = body.user_endpoint, body.client_tags
    return StreamsHeartbeat(
        group_id=body.group_id,
        member_id=body.member_id,
        epoch=body.member_epoch,
        client_id=request.header.client_id or "",
        client_host=request.client_host,
        endpoint_epoch=body.endpoint_information_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout_ms,
        topology=None if body.topology is None else _topology(body.topology),
        active=_tasks(body.active_tasks),
        standby=_tasks(body.standby_tasks),
        warmup=_tasks(body.warmup_tasks),
        process_id=body.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=None if tags is None else tuple(sorted((tag.key, tag.value) for tag in tags)),
        has_task_offsets=body.task_offsets is not None or body.task_end_offsets is not None,
        shutdown_application=body.shutdown_application,
    )


def _topology(topology: StreamsTopology) -> Topology:
    return Topology(
        topology.epoch,
        tuple(
            Subtopology(
                each.subtopology_id,
                tuple(each.source_topics),
                tuple(each.source_topic_regex),
                _internal_topics(each.state_changelog_topics),
                tuple(each.repartition_sink_topics),
                _internal_topics(each.repartition_source_topics),
                tuple(
                    CopartitionGroup(
                        tuple(group.source_topics),
                        tuple(group.source_topic_regex),
                        tuple(group.repartition_source_topics),
                    )
                    for group in each.copartition_groups
                ),
            )
            for each in topology.subtopologies
        ),
    )


def _internal_topics(topics: Sequence[StreamsTopicInfo]) -> tuple[InternalTopic, ...]:
    return tuple(
        InternalTopic(
            topic.name,
            topic.partitions,
            topic.replication_factor,
            tuple((config.key, config.value) for config in topic.topic_configs),
        )
        for topic in topics
    )


def _tasks(rows: Sequence[StreamsTaskIds] | None) -> Tasks | None:
    if rows is None:
        return None
    return tasks_of((row.subtopology_id, number) for row in rows for number in row.partitions)


def _answer(reply: StreamsReply, creation_problem: str = "") -> StreamsGroupHeartbeatResponse:
    tasks, endpoints = reply.tasks, reply.endpoints
    return StreamsGroupHeartbeatResponse(
        error_code=KafkaCode.NONE,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=reply.interval_ms,
        status=[
            StreamsGroupStatus(
                status_code=status.code,
                status_detail=f"{status.detail}; {creation_problem}"
                if creation_problem and status.code is StatusCode.MISSING_INTERNAL_TOPICS
                else status.detail,
            )
            for status in reply.statuses
        ],
        active_tasks=None if tasks is None else _task_ids(tasks.active),
        standby_tasks=None if tasks is None else _task_ids(tasks.standby),
        warmup_tasks=None if tasks is None else _task_ids(tasks.warmup),
        endpoint_information_epoch=reply.endpoint_epoch,
        partitions_by_user_endpoint=None
        if endpoints is None
        else [
            StreamsEndpointPartitions(
                user_endpoint=StreamsEndpoint(host=each.endpoint.host, port=each.endpoint.port),
                active_partitions=_topic_partitions(each.active),
                standby_partitions=_topic_partitions(each.standby),
            )
            for each in endpoints
        ],
    )


def _task_ids(tasks: Tasks) -> list[StreamsTaskIds]:
    return [
        StreamsTaskIds(subtopology_id=subtopology_id, partitions=list(partitions))
        for subtopology_id, partitions in tasks.items()
    ]


def _topic_partitions(topics: dict[str, tuple[int, ...]]) -> list[StreamsTopicPartitions]:
    return [
        StreamsTopicPartitions(topic=topic, partitions=list(partitions))
        for topic, partitions in topics.items()
    ]


def _refuse(error: KafkaError) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
