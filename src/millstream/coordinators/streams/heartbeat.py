"""The streams protocol (KIP-1071): what StreamsGroupHeartbeat does.

A member sends only heartbeats; the responses carry its epoch and, when they have changed, its
tasks. What Kafka 4.3 does not support is refused as there: static members, patterns of source
topics, reported offsets of tasks, warm-ups.
"""

from dataclasses import field, replace
from typing import Any, Final

from millstream.coordinators.codecs.streams import encode_topology
from millstream.coordinators.codecs.streams_changes import (
    CurrentTasks,
    Endpoint,
    InternalTopic,
    StoredStreamsMember,
    StreamsMemberState,
    TaskAssignment,
    Topology,
)
from millstream.coordinators.decision import Deadline, DeadlineKey, DeadlineKind, Decision, Env
from millstream.coordinators.streams.endpoints import (
    EndpointPartitions,
    endpoint_partitions,
)
from millstream.coordinators.streams.epochs import (
    News,
    Step,
    advance,
    own_setting,
    without_member,
)
from millstream.coordinators.streams.group import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    StreamsGroup,
    StreamsMember,
    no_tasks,
)
from millstream.coordinators.streams.tasks import covers, without_epochs
from millstream.coordinators.streams.topology import Status, StatusCode, check_topology
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

# While a group settles, members report often, so that tasks move quickly.
_SHORTEST_INTERVAL_MS: Final = 50
_SETTLING_INTERVAL_MAX_MS: Final = 500


@dataclass(slots=True)
class StreamsHeartbeat:
    """None, and -1: unchanged since the member last sent it."""

    group_id: str
    member_id: str
    epoch: int
    client_id: str
    client_host: str
    endpoint_epoch: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    active: dict[str, tuple[int, ...]] | None = None
    standby: dict[str, tuple[int, ...]] | None = None
    warmup: dict[str, tuple[int, ...]] | None = None
    process_id: str | None = None
    endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] | None = None
    has_task_offsets: bool = False
    shutdown_application: bool = False

    @property
    def owned(self) -> TaskAssignment | None:
        if self.active is None or self.standby is None or self.warmup is None:
            return None
        return TaskAssignment(self.active, self.standby, self.warmup)


@dataclass(slots=True)
class StreamsReply:
    member_id: str
    epoch: int
    interval_ms: int = 0
    statuses: list[Status] = field(default_factory=list)
    tasks: TaskAssignment | None = None
    endpoint_epoch: int = 0
    # None: unchanged.
    endpoints: list[EndpointPartitions] | None = None
    # Internal topics that the node should create.
    missing: tuple[InternalTopic, ...] = ()


def _refuse(text: str) -> KafkaError:
    return KafkaError(KafkaCode.INVALID_REQUEST, text)


def check(request: StreamsHeartbeat, env: Env) -> None:
    _check_support(request)
    if not request.member_id:
        raise _refuse("MemberId can't be empty.")
    if not request.group_id:
        raise _refuse("GroupId can't be empty.")
    if request.rack_id == "":
        raise _refuse("RackId can't be empty.")
    if request.epoch < STATIC_LEAVING_EPOCH:
        raise _refuse(f"MemberEpoch is {request.epoch}, but must be greater than or equal to -2.")
    if request.epoch == STATIC_LEAVING_EPOCH:
        raise _refuse("InstanceId can't be null.")
    parts = (request.active, request.standby, request.warmup)
    if any(part is not None for part in parts) and request.owned is None:
        raise _refuse("If one task-type is non-null, all must be non-null.")
    if request.epoch == JOINING_EPOCH:
        _check_join(request, env)
    elif request.topology is not None:
        raise _refuse("Topology can only be provided when (re-)joining.")


def _check_support(request: StreamsHeartbeat) -> None:
    if request.instance_id is not None:
        raise _refuse("Static membership is not yet supported.")
    if request.has_task_offsets:
        raise _refuse("TaskOffsets are not supported yet.")
    if request.warmup:
        raise _refuse("WarmupTasks are not supported yet.")
    if request.topology is not None and any(
        each.source_topic_patterns for each in request.topology.subtopologies
    ):
        raise _refuse("Regular expressions for source topics are not supported yet.")


def _check_join(request: StreamsHeartbeat, env: Env) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _refuse("RebalanceTimeoutMs must be provided in first request.")
    for name, tasks in (("ActiveTasks", request.active), ("StandbyTasks", request.standby)):
        if tasks:
            raise _refuse(f"{name} must be empty when (re-)joining.")
    if request.topology is None:
        raise _refuse("Topology must be non-null when (re-)joining.")
    check_topology(request.topology)
    try:
        size_bytes = len(encode_topology(request.topology))
    except ValueError as problem:
        raise _refuse(f"The topology cannot be stored: {problem}.") from problem
    if size_bytes > env.settings.batch_bytes_max // 2:
        text = f"The topology takes {size_bytes} bytes, which is too large."
        raise KafkaError(KafkaCode.STREAMS_INVALID_TOPOLOGY, text)


def heartbeat(group: StreamsGroup, request: StreamsHeartbeat, env: Env) -> Decision[StreamsReply]:
    """A member joins, stays alive or reports its tasks. `group` may be new and empty."""
    is_known = request.member_id in group.members
    if not is_known and len(group.members) >= env.settings.streams.members_max:
        raise KafkaError(
            KafkaCode.GROUP_MAX_SIZE_REACHED,
            "The streams group has reached its maximum capacity of "
            f"{env.settings.streams.members_max} members.",
        )
    decision: Decision[StreamsReply] = Decision()
    news = _news(group, request)
    step = advance(group, news, env, decision)
    _keep_alive(group, request.member_id, env, decision)
    _limit_revocation(group, news, step.current, env, decision)
    if request.shutdown_application and group.shutdown_requested_by is None:
        group.shutdown_requested_by = request.member_id
    decision.reply = _reply(group, request, news, step, env, has_changed=bool(decision.records))
    return decision


def _news(group: StreamsGroup, request: StreamsHeartbeat) -> News:
    known = group.members.get(request.member_id)
    if request.epoch != JOINING_EPOCH:
        if known is None:
            raise KafkaError(
                KafkaCode.UNKNOWN_MEMBER_ID,
                f"Member {request.member_id} is not a member of group {request.group_id}.",
            )
        _check_epoch(known.current, request)
    current = no_tasks() if known is None else known.current
    if request.epoch == JOINING_EPOCH:
        # It starts over and owns nothing: it may get its own tasks back.
        current = replace(no_tasks(), assigned=current.assigned)
    reported = TaskAssignment() if request.epoch == JOINING_EPOCH else request.owned
    stored = _stored(request, known)
    return News(request.member_id, stored, current, request.topology, reported)


def _check_epoch(current: CurrentTasks, request: StreamsHeartbeat) -> None:
    if request.epoch == current.epoch:
        return
    # The response with its new epoch may have been lost; then it owns no more than it did.
    owned = request.owned
    is_one_behind = request.epoch == current.previous_epoch and owned is not None
    if is_one_behind and covers(without_epochs(current.assigned), owned or TaskAssignment()):
        return
    size = "greater" if request.epoch > current.epoch else "smaller"
    raise KafkaError(
        KafkaCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {size} member epoch ({request.epoch}) than the one known "
        f"by the group coordinator ({current.epoch}). The member must abandon all its tasks and "
        "rejoin.",
    )


def _stored(request: StreamsHeartbeat, known: StreamsMember | None) -> StoredStreamsMember:
    base = known.stored if known is not None else None
    timeout_ms, topology = request.rebalance_timeout_ms, request.topology
    tags = request.client_tags
    return StoredStreamsMember(
        instance_id=None,
        rack_id=request.rack_id or (base.rack_id if base else None),
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=base.rebalance_timeout_ms if timeout_ms == -1 and base else timeout_ms,
        topology_epoch=topology.epoch if topology else base.topology_epoch if base else -1,
        process_id=request.process_id or (base.process_id if base else ""),
        endpoint=request.endpoint or (base.endpoint if base else None),
        client_tags=tags if tags is not None else base.client_tags if base else (),
    )


# -- the reply ------------------------------------------------------------------------


def _reply(
    group: StreamsGroup,
    request: StreamsHeartbeat,
    news: News,
    step: Step,
    env: Env,
    *,
    has_changed: bool,
) -> StreamsReply:
    before = group.tasks_of(news.member_id, news.current.assigned)
    after = group.tasks_of(news.member_id, step.current.assigned)
    # A member that is behind, or reports something else, may have missed a response.
    missed_it = request.epoch != news.current.epoch or news.reported not in (None, after)
    shows_tasks = request.epoch == JOINING_EPOCH or before != after or missed_it
    if before != after and news.stored.endpoint is not None:
        group.endpoint_epoch += 1
    statuses = step.statuses
    if group.shutdown_requested_by is not None:
        detail = (
            f"Streams group member {group.shutdown_requested_by} encountered a fatal error and "
            "requested a shutdown for the entire application."
        )
        statuses = [*statuses, Status(StatusCode.SHUTDOWN_APPLICATION, detail)]
    return StreamsReply(
        member_id=request.member_id,
        epoch=step.current.epoch,
        interval_ms=_interval_ms(group, step, env, has_changed=has_changed),
        statuses=statuses,
        tasks=after if shows_tasks else None,
        endpoint_epoch=group.endpoint_epoch,
        endpoints=_endpoints(group, request, news, step, env),
        missing=step.configured.missing,
    )


def _endpoints(
    group: StreamsGroup, request: StreamsHeartbeat, news: News, step: Step, env: Env
) -> list[EndpointPartitions] | None:
    if request.endpoint_epoch == group.endpoint_epoch:
        return None
    members = {
        each: (member.stored.endpoint, member.current)
        for each, member in group.members.items()
        if each != request.member_id
    }
    # Itself last, as it is after the step.
    members[request.member_id] = (news.stored.endpoint, step.current)
    return endpoint_partitions(
        (
            (endpoint, group.tasks_of(each, current.assigned))
            for each, (endpoint, current) in members.items()
            if endpoint is not None
        ),
        step.configured,
        env.image,
    )


def _interval_ms(group: StreamsGroup, step: Step, env: Env, *, has_changed: bool) -> int:
    """When the member is to report again.

    Soon after a change, because tasks move at the speed of the reports. Then more and more
    slowly, up to the configured interval. A client gives up on missing source topics after two
    intervals, so those are always as configured.
    """
    configured_ms = heartbeat_interval_ms(group.group_id, env)
    if any(status.code is StatusCode.MISSING_SOURCE_TOPICS for status in step.statuses):
        return configured_ms
    quiet_ms = 0 if has_changed else max(env.now_ms - group.target_timestamp_ms, 0)
    interval_ms = max(quiet_ms // 2, _SHORTEST_INTERVAL_MS)
    if not (step.current.state is StreamsMemberState.STABLE and group.state_name == "Stable"):
        interval_ms = min(interval_ms, _SETTLING_INTERVAL_MAX_MS)
    return min(interval_ms, configured_ms)


def heartbeat_interval_ms(group_id: str, env: Env) -> int:
    default = env.settings.streams.heartbeat_interval_ms
    return own_setting(group_id, "streams.heartbeat.interval.ms", env, default)


# -- deadlines ------------------------------------------------------------------------


def _keep_alive(group: StreamsGroup, member_id: str, env: Env, decision: Decision[Any]) -> None:
    default = env.settings.streams.session_timeout_ms
    session_ms = own_setting(group.group_id, "streams.session.timeout.ms", env, default)
    key = DeadlineKey(DeadlineKind.MEMBER_SESSION, group.group_id, member_id)
    decision.deadlines.append(Deadline(key, env.uptime_ms + session_ms))


def _limit_revocation(
    group: StreamsGroup, news: News, after: CurrentTasks, env: Env, decision: Decision[Any]
) -> None:
    """Give a member its rebalance timeout to apply its new tasks."""
    key = DeadlineKey(DeadlineKind.MEMBER_REVOKE, group.group_id, news.member_id)
    is_late = _keeps_others_waiting(group, news.member_id, after)
    end_ms = env.uptime_ms + news.stored.rebalance_timeout_ms if is_late else None
    decision.deadlines.append(Deadline(key, end_ms, is_new_only=after == news.current))


def _keeps_others_waiting(group: StreamsGroup, member_id: str, current: CurrentTasks) -> bool:
    is_revoking = current.state is StreamsMemberState.UNREVOKED_TASKS
    return is_revoking or member_id in group.unacknowledged


def must_go(group: StreamsGroup, key: DeadlineKey) -> bool:
    """Whether an expired deadline ends this member."""
    member = group.members.get(key.member_id)
    if member is None:
        return False
    if key.kind is DeadlineKind.MEMBER_REVOKE:
        return _keeps_others_waiting(group, key.member_id, member.current)
    return key.kind is DeadlineKind.MEMBER_SESSION


def deadlines_after_replay(group: StreamsGroup, env: Env, decision: Decision[Any]) -> None:
    for member_id, member in group.members.items():
        _keep_alive(group, member_id, env, decision)
        if member.current.state is StreamsMemberState.UNREVOKED_TASKS:
            key = DeadlineKey(DeadlineKind.MEMBER_REVOKE, group.group_id, member_id)
            end_ms = env.uptime_ms + max(member.stored.rebalance_timeout_ms, 0)
            decision.deadlines.append(Deadline(key, end_ms))


# -- members that leave ---------------------------------------------------------------


def is_leaving(request: StreamsHeartbeat) -> bool:
    return request.epoch == LEAVING_EPOCH


def leave(group: StreamsGroup, request: StreamsHeartbeat) -> Decision[StreamsReply]:
    if request.member_id not in group.members:
        raise KafkaError(
            KafkaCode.UNKNOWN_MEMBER_ID,
            f"Member {request.member_id} is not a member of group {request.group_id}.",
        )
    if request.shutdown_application and group.shutdown_requested_by is None:
        group.shutdown_requested_by = request.member_id
    decision: Decision[StreamsReply] = Decision(
        reply=StreamsReply(request.member_id, request.epoch)
    )
    remove(group, request.member_id, decision)
    return decision


def remove(group: StreamsGroup, member_id: str, decision: Decision[Any]) -> None:
    decision.records += without_member(group, member_id)
    for kind in (DeadlineKind.MEMBER_SESSION, DeadlineKind.MEMBER_REVOKE):
        decision.deadlines.append(Deadline(DeadlineKey(kind, group.group_id, member_id), None))
