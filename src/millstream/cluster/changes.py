"""Decides the result of a requested change of topics or options. Pure.

Every function takes the image and the options in force and returns the new value, or
raises the KafkaError that Kafka returns. Nothing here writes; `metadata` does.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import Final, assert_never

from millstream.cluster.election import target_replicas
from millstream.cluster.placement import place_replicas
from millstream.cluster.state import ClusterImage, NamedResource
from millstream.config import (
    BROKER_OPTIONS,
    CLIENT_METRICS_OPTIONS,
    GROUP_OPTIONS,
    ONLY_FOR_ALL_NODES,
    TOPIC_OPTIONS,
    BrokerConfig,
    Kind,
    Option,
    broker_config_problem,
    check_client_metrics,
    format_value,
    group_overrides_problem,
    topic_overrides_problem,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass
from millstream.model import topic_name_problem
from millstream.wire.cursor import STRING_BYTES_MAX

# Kafka's bound on what one request may create; a larger one would be one huge transaction.
PARTITIONS_PER_REQUEST_MAX: Final = 10_000
_METADATA_TOPIC: Final = "__cluster_metadata"
_USE_DEFAULT: Final = -1
NAMED_OPTIONS: Final = {
    NamedResource.GROUP: GROUP_OPTIONS,
    NamedResource.CLIENT_METRICS: CLIENT_METRICS_OPTIONS,
}


@dataclass(frozen=True, slots=True)
class NewTopic:
    """-1 for partitions or replication factor means the node's default.

    `assignments` gives the replicas of each partition instead; then both must be -1.
    """

    name: str
    partitions: int = _USE_DEFAULT
    replication_factor: int = _USE_DEFAULT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


class ConfigOperation(IntEnum):
    """Numbered as in IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigChange:
    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


def flat_name(name: str) -> str:
    """Metric names do not distinguish "." and "_"."""
    return name.replace(".", "_")


def check_topic_name(taken: Mapping[str, str], name: str) -> None:
    """Raises KafkaError if no topic of this name can be created; `taken` has the names there
    are, by their flat names."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise KafkaError(KafkaCode.INVALID_TOPIC_EXCEPTION, problem)
    if name == _METADATA_TOPIC:
        raise KafkaError(KafkaCode.INVALID_REQUEST, f"{name} is Kafka's own and cannot be created")
    other = taken.get(flat_name(name))
    if other == name:
        raise KafkaError(KafkaCode.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
    if other is not None:
        raise KafkaError(KafkaCode.INVALID_TOPIC_EXCEPTION, f"topic {name} collides with {other}")


def check_total_partitions(config: BrokerConfig, wanted: Iterable[NewTopic]) -> None:
    """Raises KafkaError where one request would create too many."""
    default = config.int("num.partitions")
    total = 0
    for new in wanted:
        if new.assignments:
            total += len(new.assignments)
        elif new.partitions >= _USE_DEFAULT:
            total += default if new.partitions == _USE_DEFAULT else new.partitions
        # At once: there may be many more, and each takes its time.
        _check_partition_count(total)


def assign_new_topic(
    image: ClusterImage, config: BrokerConfig, wanted: NewTopic
) -> list[tuple[int, ...]]:
    """Replicas of each partition. Raises KafkaError."""
    if wanted.assignments:
        return _given_assignment(image, wanted)
    if wanted.replication_factor == 0 or wanted.replication_factor < _USE_DEFAULT:
        raise KafkaError(
            KafkaCode.INVALID_REPLICATION_FACTOR,
            "the replication factor must be at least 1, or -1 for the default",
        )
    if wanted.partitions == 0 or wanted.partitions < _USE_DEFAULT:
        raise KafkaError(
            KafkaCode.INVALID_PARTITIONS,
            "the number of partitions must be at least 1, or -1 for the default",
        )
    partitions, replicas = wanted.partitions, wanted.replication_factor
    if partitions == _USE_DEFAULT:
        partitions = config.int("num.partitions")
    if replicas == _USE_DEFAULT:
        replicas = config.int("default.replication.factor")
    _check_partition_count(partitions)
    return place(image, partitions=partitions, replication_factor=replicas, first=0)


def place(
    image: ClusterImage, *, partitions: int, replication_factor: int, first: int
) -> list[tuple[int, ...]]:
    """Replicas on the available nodes. Raises KafkaError if there are too few."""
    broker_ids = _placeable(image, replication_factor)
    if replication_factor > len(broker_ids):
        raise KafkaError(
            KafkaCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} needs as many nodes, "
            f"there are {len(broker_ids)}",
        )
    racks = {i: rack for i, broker in image.brokers.items() if (rack := broker.rack) is not None}
    return place_replicas(
        broker_ids,
        partitions=partitions,
        replication_factor=replication_factor,
        first=first,
        racks=racks,
    )


def _placeable(image: ClusterImage, replication_factor: int) -> list[int]:
    """Nodes that are stopping get no new replicas, if the others suffice."""
    staying = sorted(i for i, broker in image.brokers.items() if not broker.is_stopping)
    return staying if len(staying) >= replication_factor else sorted(image.brokers)


def assign_added_partitions(
    image: ClusterImage, topic: str, count: int, assignments: Sequence[Sequence[int]] | None
) -> list[tuple[int, ...]]:
    """Replicas of the partitions that extend `topic` to `count`. Raises KafkaError."""
    state = image.topics.get(topic)
    if state is None:
        raise unknown_topic(topic)
    present = len(state.partitions)
    if count == present:
        raise KafkaError(KafkaCode.INVALID_PARTITIONS, f"topic {topic} has {present} already")
    if count < present:
        raise KafkaError(
            KafkaCode.INVALID_PARTITIONS,
            f"topic {topic} has {present} partitions; {count} would be fewer",
        )
    _check_partition_count(count - present)
    # Without the replicas that a move is about to remove.
    replication_factor = len(target_replicas(state.partitions[0]))
    if assignments is None:
        return place(
            image,
            partitions=count - present,
            replication_factor=replication_factor,
            first=present,
        )
    if len(assignments) != count - present:
        raise KafkaError(
            KafkaCode.INVALID_REPLICA_ASSIGNMENT,
            f"{count - present} partitions are new, replicas are given for {len(assignments)}",
        )
    return [_checked_replicas(image, replicas, replication_factor) for replicas in assignments]


def check_overrides(config: BrokerConfig, wanted: Mapping[str, str | None]) -> dict[str, str]:
    """A topic's options as they will be stored. Raises KafkaError."""
    overrides: dict[str, str] = {}
    for name, value in wanted.items():
        if value is None:
            raise KafkaError(KafkaCode.INVALID_CONFIG, f"{name}: no value is given")
        overrides[name] = value
    problem = topic_overrides_problem(config, overrides)
    if problem is not None:
        raise KafkaError(KafkaCode.INVALID_CONFIG, problem)
    return overrides


def changed_topic_overrides(
    config: BrokerConfig, present: Mapping[str, str], changes: Sequence[ConfigChange]
) -> dict[str, str]:
    """A topic's options after the changes. Raises KafkaError."""
    # Only changed options are checked alone: an option that a newer release stored must not
    # prevent a change of another one.
    changed = _apply_changes(TOPIC_OPTIONS, present, changes)
    touched = {change.name for change in changes}
    check_overrides(
        config,
        {
            name: value
            for name, value in changed.items()
            if name in touched or name in TOPIC_OPTIONS
        },
    )
    return changed


def changed_broker_overrides(
    broker_id: int | None, present: Mapping[str, str], changes: Sequence[ConfigChange]
) -> dict[str, str]:
    """The run-time options of a node, or of all with None, after the changes. Raises KafkaError."""
    for change in changes:
        is_removed = change.operation is ConfigOperation.DELETE
        if broker_id is not None and change.name in ONLY_FOR_ALL_NODES and not is_removed:
            raise KafkaError(
                KafkaCode.INVALID_CONFIG,
                f"{change.name} has one value for the whole cluster: set it for all nodes, with an"
                " empty node name (`millstream node config --all`)",
            )
        value = change.value if change.operation is ConfigOperation.SET else None
        problem = broker_config_problem(change.name, value)
        if problem is not None:
            raise KafkaError(KafkaCode.INVALID_REQUEST, problem)
    changed = _apply_changes(BROKER_OPTIONS, present, changes)
    for name in changed.keys() & {change.name for change in changes}:
        problem = broker_config_problem(name, changed[name])
        if problem is not None:
            raise KafkaError(KafkaCode.INVALID_REQUEST, problem)
    return changed


def changed_named_overrides(
    kind: NamedResource,
    config: BrokerConfig,
    present: Mapping[str, str],
    changes: Sequence[ConfigChange],
) -> dict[str, str]:
    """The options of a group or a subscription after the changes. Raises KafkaError."""
    changed = _apply_changes(NAMED_OPTIONS[kind], present, changes)
    match kind:
        case NamedResource.GROUP:
            problem = group_overrides_problem(config, changed)
            if problem is not None:
                raise KafkaError(KafkaCode.INVALID_CONFIG, problem)
        case NamedResource.CLIENT_METRICS:
            check_client_metrics(changed)
        case _:
            assert_never(kind)
    return changed


def unknown_topic(name: str) -> KafkaError:
    return KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")


def _given_assignment(image: ClusterImage, wanted: NewTopic) -> list[tuple[int, ...]]:
    if wanted.partitions != _USE_DEFAULT or wanted.replication_factor != _USE_DEFAULT:
        raise KafkaError(
            KafkaCode.INVALID_REQUEST,
            "where replicas are given, partitions and replication factor must be -1",
        )
    count = len(wanted.assignments)
    if set(wanted.assignments) != set(range(count)):
        raise KafkaError(
            KafkaCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0, without gaps"
        )
    _check_partition_count(count)
    replication_factor = len(wanted.assignments[0])
    return [
        _checked_replicas(image, wanted.assignments[number], replication_factor)
        for number in range(count)
    ]


def _checked_replicas(
    image: ClusterImage, replicas: Sequence[int], replication_factor: int
) -> tuple[int, ...]:
    if not replicas:
        problem = "a partition has no replicas"
    elif len(set(replicas)) != len(replicas):
        problem = f"a node is named twice in {list(replicas)}"
    elif len(replicas) != replication_factor:
        problem = "partitions of one topic have different numbers of replicas"
    elif not image.brokers.keys() >= set(replicas):
        problem = f"{list(replicas)} names a node that is not there"
    else:
        return tuple(replicas)
    raise KafkaError(KafkaCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _check_partition_count(partitions: int) -> None:
    if partitions > PARTITIONS_PER_REQUEST_MAX:
        raise too_many_partitions()


def too_many_partitions() -> KafkaError:
    return KafkaError(
        KafkaCode.POLICY_VIOLATION,
        f"a request may create {PARTITIONS_PER_REQUEST_MAX} partitions at most",
    )


def _apply_changes(
    table: Mapping[str, Option], present: Mapping[str, str], changes: Sequence[ConfigChange]
) -> dict[str, str]:
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        raise KafkaError(KafkaCode.INVALID_REQUEST, "an option is named twice")
    changed = dict(present)
    for change in changes:
        match change.operation:
            case ConfigOperation.DELETE:
                changed.pop(change.name, None)
            case ConfigOperation.SET:
                changed[change.name] = _given(change)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                changed[change.name] = _changed_list(table, changed, change)
    return changed


def _changed_list(
    table: Mapping[str, Option], present: Mapping[str, str], change: ConfigChange
) -> str:
    option = table.get(change.name)
    if option is None or option.kind is not Kind.LIST:
        raise KafkaError(KafkaCode.INVALID_CONFIG, f"{change.name} is not a list")
    text = present.get(change.name, format_value(option.default) or "")
    items = [item.strip() for item in text.split(",") if item.strip()]
    named = [item.strip() for item in _given(change).split(",") if item.strip()]
    # Sets, as a list may be as long as requests have made it.
    if change.operation is ConfigOperation.APPEND:
        present_items = set(items)
        longer = ",".join(items + [item for item in named if item not in present_items])
        size_bytes = len(longer.encode())
        # A longer value could be set, and never be described.
        if size_bytes > STRING_BYTES_MAX:
            raise KafkaError(
                KafkaCode.INVALID_CONFIG,
                f"{change.name} would have {size_bytes} bytes; {STRING_BYTES_MAX} is the most",
            )
        return longer
    removed = set(named)
    return ",".join(item for item in items if item not in removed)


def _given(change: ConfigChange) -> str:
    if change.value is None:
        raise KafkaError(KafkaCode.INVALID_REQUEST, f"{change.name}: no value is given")
    return change.value
