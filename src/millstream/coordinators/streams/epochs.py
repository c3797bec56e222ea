"""A step of a streams group: one member's update, and all that follows from it. Pure.

    update of a member -> its record, and the topology of the first one -> another epoch of the
    group, if members, topics or settings changed -> a new target for all members -> the next
    step of this member

All records of a step are one batch: a crash leaves all of them or none.
"""

from dataclasses import field
from typing import Any, Final

from millstream.coordinators.codecs.changes import Change
from millstream.coordinators.codecs.streams_changes import (
    CurrentTasks,
    StoredStreamsGroup,
    StoredStreamsMember,
    StoredStreamsTarget,
    StreamsCurrentMemberChange,
    StreamsGroupChange,
    StreamsMemberChange,
    StreamsMemberState,
    StreamsTargetChange,
    StreamsTargetMemberChange,
    TaskAssignment,
    Topology,
    TopologyChange,
)
from millstream.coordinators.consumer.subscriptions import topics_hash
from millstream.coordinators.decision import (
    Deadline,
    DeadlineKey,
    DeadlineKind,
    Decision,
    Env,
)
from millstream.coordinators.streams.assignor import AssignedMember, TaskCount, assign_sticky
from millstream.coordinators.streams.group import (
    JOINING_EPOCH,
    Standing,
    StreamsGroup,
    StreamsMember,
)
from millstream.coordinators.streams.reconcile import reconcile
from millstream.coordinators.streams.tasks import covers
from millstream.coordinators.streams.topology import (
    ConfiguredTopology,
    Status,
    StatusCode,
    configure,
    is_same,
    required_topics,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

_STANDBY_REPLICAS: Final = "num.standby.replicas"


@dataclass(slots=True)
class News:
    """A member after its update."""

    member_id: str
    stored: StoredStreamsMember
    current: CurrentTasks
    # Sent by members that join.
    topology: Topology | None = None
    # What the member reports to own; None: as it last reported.
    reported: TaskAssignment | None = None


@dataclass(slots=True)
class Step:
    """The member after the step, the topology, and what the member should know."""

    current: CurrentTasks
    configured: ConfiguredTopology
    statuses: list[Status] = field(default_factory=list)


def advance(group: StreamsGroup, news: News, env: Env, decision: Decision[Any]) -> Step:
    """Add the step's records to the decision."""
    statuses: list[Status] = []
    known = group.members.get(news.member_id)
    is_changed = known is None or known.stored != news.stored
    if is_changed:
        decision.records.append(StreamsMemberChange(group.group_id, news.member_id, news.stored))
    topology = _topology(group, news, decision)
    if news.stored.topology_epoch < topology.epoch:
        detail = (
            f"The member's topology epoch {news.stored.topology_epoch} is behind the group's "
            f"topology epoch {topology.epoch}."
        )
        statuses.append(Status(StatusCode.STALE_TOPOLOGY, detail))
    configured = _configured(group, topology, env)
    _check_tasks(news.reported, configured)
    epoch = _next_epoch(group, configured, env, decision, is_changed=is_changed)
    _gather_if_new(group, env, decision)
    target, target_epoch = _target(group, news, configured, epoch, env, decision, statuses)
    after = _reconcile(group, news, target, target_epoch)
    if known is None or after != known.current:
        decision.records.append(StreamsCurrentMemberChange(group.group_id, news.member_id, after))
    if configured.problem is not None:
        statuses.append(configured.problem)
    return Step(after, configured, statuses)


def _reconcile(
    group: StreamsGroup, news: News, target: TaskAssignment, target_epoch: int
) -> CurrentTasks:
    current, known = news.current, group.members.get(news.member_id)
    before = group.tasks_of(news.member_id, current.assigned)
    has = before if current.epoch != JOINING_EPOCH else TaskAssignment()
    if news.reported is not None and covers(news.reported, has):
        group.unacknowledged.discard(news.member_id)
    is_acknowledged = news.member_id not in group.unacknowledged
    standing = Standing(group.owners_version, target_epoch, is_acknowledged)
    if known is not None and known.stays == standing and _may_stay(known, news):
        return current
    after = reconcile(
        current,
        process_id=news.stored.process_id,
        target=target,
        target_epoch=target_epoch,
        others=lambda: group.owners(without=news.member_id),
        reported=news.reported,
        is_acknowledged=is_acknowledged,
    )
    if known is not None and after is current and _may_stay(known, news):
        known.stays = standing
    elif not covers(has, group.tasks_of(news.member_id, after.assigned)):
        group.unacknowledged.add(news.member_id)
    return after


def _may_stay(known: StreamsMember, news: News) -> bool:
    """Whether the next step of the member does not depend on its report. A member that waits for
    others would compare all tasks with each heartbeat, to find that nothing has changed."""
    return (
        news.current is known.current
        and known.stored.process_id == news.stored.process_id
        and known.current.epoch != JOINING_EPOCH
        and known.current.state in (StreamsMemberState.STABLE, StreamsMemberState.UNRELEASED_TASKS)
    )


def without_member(group: StreamsGroup, member_id: str) -> list[Change]:
    """The records of a member's end: the group moves to another epoch without it."""
    return [
        StreamsCurrentMemberChange(group.group_id, member_id, None),
        StreamsTargetMemberChange(group.group_id, member_id, None),
        StreamsMemberChange(group.group_id, member_id, None),
        StreamsGroupChange(
            group.group_id,
            StoredStreamsGroup(
                group.epoch + 1,
                group.metadata_hash,
                group.validated_topology_epoch,
                group.assignment_configs,
            ),
        ),
    ]


def group_tombstones(group: StreamsGroup) -> list[Change]:
    """The records that remove a group without members."""
    return [
        StreamsTargetChange(group.group_id, None),
        TopologyChange(group.group_id, None),
        StreamsGroupChange(group.group_id, None),
    ]


# -- the topology ---------------------------------------------------------------------


def _topology(group: StreamsGroup, news: News, decision: Decision[Any]) -> Topology:
    """The group's topology, which is the first member's."""
    if group.topology is None:
        if news.topology is None:
            raise KafkaError(
                KafkaCode.STREAMS_INVALID_TOPOLOGY, "The group has no topology; join it again."
            )
        decision.records.append(TopologyChange(group.group_id, news.topology))
        return news.topology
    is_stale = news.topology is None or news.topology.epoch < group.topology.epoch
    if not is_stale and not is_same(news.topology, group.topology):
        raise KafkaError(
            KafkaCode.INVALID_REQUEST,
            "Topology updates are not supported yet. Stop all members and delete the group, or use "
            "another application.id.",
        )
    return group.topology


def _configured(group: StreamsGroup, topology: Topology, env: Env) -> ConfiguredTopology:
    """Computed again only when topics have changed: it costs more than a heartbeat."""
    known = group.configured
    is_known = known is not None and known.topology is topology
    if known is not None and is_known and group.topics_version_seen == env.topics_version:
        return known
    metadata_hash = topics_hash(required_topics(topology), env.image)
    if known is None or not is_known or known.metadata_hash != metadata_hash:
        known = configure(topology, env.image, metadata_hash)
    group.configured = known
    group.topics_version_seen = env.topics_version
    return known


def _check_tasks(reported: TaskAssignment | None, configured: ConfiguredTopology) -> None:
    if reported is None or configured.problem is not None:
        return
    for tasks in (reported.active, reported.standby, reported.warmup):
        for subtopology_id, partitions in tasks.items():
            found = configured.find(subtopology_id)
            if found is None:
                text = f"Subtopology {subtopology_id} does not exist in the topology."
                raise KafkaError(KafkaCode.INVALID_REQUEST, text)
            for partition in partitions:
                if not 0 <= partition < found.tasks:
                    raise KafkaError(
                        KafkaCode.INVALID_REQUEST,
                        f"Task {partition} for subtopology {subtopology_id} is invalid. "
                        f"Number of tasks for this subtopology: {found.tasks}",
                    )


# -- the group's epoch ----------------------------------------------------------------


def _next_epoch(
    group: StreamsGroup,
    configured: ConfiguredTopology,
    env: Env,
    decision: Decision[Any],
    *,
    is_changed: bool,
) -> int:
    validated = configured.topology.epoch if configured.problem is None else -1
    configs = {_STANDBY_REPLICAS: str(own_standby_replicas(group.group_id, env))}
    is_same = (
        configured.metadata_hash == group.metadata_hash
        and validated == group.validated_topology_epoch
        and configs == group.assignment_configs
    )
    if is_same and not is_changed:
        return group.epoch
    stored = StoredStreamsGroup(group.epoch + 1, configured.metadata_hash, validated, configs)
    decision.records.append(StreamsGroupChange(group.group_id, stored))
    return stored.epoch


def _gather_if_new(group: StreamsGroup, env: Env, decision: Decision[Any]) -> None:
    """The first member of a group waits for more, because tasks with state are costly to move."""
    settings = env.settings.streams
    name = "streams.initial.rebalance.delay.ms"
    delay_ms = own_setting(group.group_id, name, env, settings.initial_rebalance_delay_ms)
    if group.members or delay_ms == 0:
        return
    group.is_gathering = True
    key = DeadlineKey(DeadlineKind.FIRST_TARGET, group.group_id, "")
    decision.deadlines.append(Deadline(key, env.uptime_ms + delay_ms, is_new_only=True))


def own_setting(group_id: str, name: str, env: Env, default: int) -> int:
    """A group may have its own settings; they were checked when they were set."""
    overrides = env.image.group_overrides.get(group_id)
    return default if overrides is None else int(overrides.get(name, default))


def own_standby_replicas(group_id: str, env: Env) -> int:
    default = env.settings.streams.standby_replicas
    return own_setting(group_id, "streams.num.standby.replicas", env, default)


# -- the target -----------------------------------------------------------------------


def _target(
    group: StreamsGroup,
    news: News,
    configured: ConfiguredTopology,
    epoch: int,
    env: Env,
    decision: Decision[Any],
    statuses: list[Status],
) -> tuple[TaskAssignment, int]:
    """The member's target and its epoch."""
    last = group.target.get(news.member_id, TaskAssignment())
    if epoch <= group.target_epoch:
        return last, group.target_epoch
    if group.is_gathering:
        detail = "Assignment delayed due to the configured initial rebalance delay."
        statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, detail))
        return last, group.target_epoch
    if _is_too_early(group, env):
        detail = "Assignment delayed due to the configured assignment interval."
        statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, detail))
        return last, group.target_epoch
    members = {each: member.stored for each, member in group.members.items()}
    members[news.member_id] = news.stored
    target = _new_target(group, members, configured, epoch, env, decision)
    return target[news.member_id], epoch


def _is_too_early(group: StreamsGroup, env: Env) -> bool:
    name = "streams.assignment.interval.ms"
    default = env.settings.streams.assignment_interval_ms
    interval_ms = own_setting(group.group_id, name, env, default)
    # A clock that was set back must not delay it for long.
    return 0 <= env.now_ms - group.target_timestamp_ms < interval_ms


def first_target(group: StreamsGroup, env: Env, decision: Decision[Any]) -> None:
    """The group has waited long enough for more members."""
    group.is_gathering = False
    if not group.members or group.topology is None or group.epoch <= group.target_epoch:
        return
    members = {each: member.stored for each, member in group.members.items()}
    configured = _configured(group, group.topology, env)
    if (configured.problem is None) != (group.topology.epoch == group.validated_topology_epoch):
        # Topics have changed since the last heartbeat; the next one will move the group on.
        return
    _new_target(group, members, configured, group.epoch, env, decision)


def _new_target(
    group: StreamsGroup,
    members: dict[str, StoredStreamsMember],
    configured: ConfiguredTopology,
    epoch: int,
    env: Env,
    decision: Decision[Any],
) -> dict[str, TaskAssignment]:
    """Compute the whole assignment again; only the differences are written."""
    target = dict.fromkeys(members, TaskAssignment())
    if configured.problem is None:
        target = assign_sticky(
            [
                AssignedMember(each, stored.process_id, group.target.get(each, TaskAssignment()))
                for each, stored in members.items()
            ],
            {
                each.subtopology_id: TaskCount(each.tasks, each.is_stateful)
                for each in configured.subtopologies
            },
            standby_replicas=own_standby_replicas(group.group_id, env),
        )
    for member_id in sorted(target):
        if group.target.get(member_id) != target[member_id]:
            change = StreamsTargetMemberChange(group.group_id, member_id, target[member_id])
            decision.records.append(change)
    stored = StoredStreamsTarget(epoch, env.now_ms)
    decision.records.append(StreamsTargetChange(group.group_id, stored))
    return target
