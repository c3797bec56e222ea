"""Adopts a data directory that Apache Kafka wrote.

Topics, their ids and options come from Kafka's own metadata if the directory has it,
otherwise from the partition directories. In the second case the retention is unknown, so
nothing is deleted until the user sets it. A plan only reads; `adopt` writes into the
coordination store and nowhere else.
"""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

from millstream.cluster import znodes
from millstream.cluster.kraft import METADATA_DIRECTORY, KraftMetadata, read_kraft_metadata
from millstream.cluster.state import PartitionState, TopicState
from millstream.cluster.stores.embedded import FILE_NAME
from millstream.cluster.stores.store import CoordinationStore, Create, Operation
from millstream.config import (
    ONLY_FOR_ALL_NODES,
    BrokerConfig,
    broker_config_problem,
    topic_config_problem,
)
from millstream.config.files import parse_properties
from millstream.errors import StartError
from millstream.model import topic_name_problem

log = logging.getLogger(__name__)

# For topics whose options are unknown: keep everything.
KEEP_EVERYTHING: Final = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
# Far above any id that Kafka can have handed out, for a directory without its metadata.
UNKNOWN_PRODUCER_ID_START: Final = 2**40

_PARTITION_DIRECTORY: Final = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9]\d{0,8})")
_META_FILE: Final = "meta.properties"
_DAY_MS: Final = 86_400_000


@dataclass(slots=True)
class FoundPartition:
    """A partition directory: what its small files say."""

    topic: str
    partition: int
    topic_id: UUID | None
    leader_epoch: int


@dataclass(slots=True)
class AdoptedTopic:
    """Leader epochs by partition number; `topic_id` None means that a new one is needed."""

    name: str
    topic_id: UUID | None
    leader_epochs: list[int]
    configs: dict[str, str]


@dataclass(slots=True)
class AdoptedMetadata:
    topics: list[AdoptedTopic] = field(default_factory=list)
    broker_configs: dict[int | None, dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: str | None = None


@dataclass(slots=True)
class AdoptionPlan:
    """`lines` are for the user to read before agreeing; any problem forbids the adoption."""

    directory: Path
    metadata: AdoptedMetadata
    lines: list[str]
    problems: list[str]


def needs_adoption(directory: Path) -> bool:
    """Whether the directory has Kafka's data and is not adopted yet."""
    if not directory.is_dir() or (directory / FILE_NAME).exists():
        return False
    if (directory / METADATA_DIRECTORY).exists():
        return True
    return any(
        path.is_dir() and _partition_of(path.name) is not None for path in directory.iterdir()
    )


def plan_adoption(directory: Path, config: BrokerConfig) -> AdoptionPlan:
    """What adopting `directory` would do. Raises StartError if it cannot be read."""
    try:
        meta = _read_meta(directory / _META_FILE)
        found = _found_partitions(directory)
    except (OSError, ValueError) as problem:
        raise StartError(f"{directory}: cannot be read: {problem}") from None
    kraft = read_kraft_metadata(directory)
    plan = AdoptionPlan(directory, AdoptedMetadata(), [], [])
    plan.metadata.cluster_id = meta.get("cluster.id")
    plan.metadata.directory_id = meta.get("directory.id")
    if "node.id" in meta or "broker.id" in meta:
        plan.metadata.node_id = int(meta.get("node.id") or meta["broker.id"])
    if kraft is None:
        _plan_without_metadata(plan, found)
    else:
        _plan_with_metadata(plan, kraft, found)
    configs = plan.metadata.broker_configs
    own, for_all = configs.get(plan.metadata.node_id, {}), configs.get(None, {})
    effective = config.with_dynamic(own, for_all)
    plan.lines[:0] = _summary(plan, effective, has_metadata=kraft is not None)
    return plan


async def adopt(
    plan: AdoptionPlan, store: CoordinationStore, *, broker_id: int, new_topic_ids: Iterator[UUID]
) -> None:
    """Write the plan into an empty store, in one transaction.

    `new_topic_ids` are for topics from before Kafka had topic ids.
    """
    if plan.problems:
        raise StartError(f"{plan.directory}: cannot be adopted: {plan.problems[0]}")
    metadata = plan.metadata
    operations: list[Operation] = [Create(path) for path in znodes.BASE_PATHS]
    if metadata.cluster_id is not None:
        data = znodes.encode_cluster_id(metadata.cluster_id)
        operations.append(Create(znodes.CLUSTER_ID, data))
    for topic in metadata.topics:
        topic_id = topic.topic_id or next(new_topic_ids)
        state = _topic_state(topic, topic_id, broker_id)
        operations += znodes.create_topic(state, controller_epoch=0)
    for owner, configs in metadata.broker_configs.items():
        path = znodes.broker_config_path(owner)
        operations.append(Create(path, znodes.encode_config(configs)))
    if metadata.next_producer_id > 0:
        # The block before the first that we hand out.
        block = range(metadata.next_producer_id - 1, metadata.next_producer_id)
        data = znodes.encode_producer_block(broker_id, block)
        operations.append(Create(znodes.PRODUCER_IDS, data))
    await store.commit(operations)
    log.info("adopted %s: %d topics", plan.directory, len(metadata.topics))


def _topic_state(topic: AdoptedTopic, topic_id: UUID, broker_id: int) -> TopicState:
    mine = (broker_id,)
    partitions = [
        PartitionState(leader=broker_id, leader_epoch=epoch, isr=mine, replicas=mine, version=0)
        for epoch in topic.leader_epochs
    ]
    return TopicState(topic.name, topic_id, partitions, topic.configs)


def _plan_with_metadata(
    plan: AdoptionPlan, kraft: KraftMetadata, found: list[FoundPartition]
) -> None:
    by_place = {(each.topic, each.partition): each for each in found}
    for topic in sorted(kraft.topics.values(), key=lambda topic: topic.name):
        epochs = []
        if sorted(topic.partitions) != list(range(len(topic.partitions))):
            plan.problems.append(f"Kafka's metadata lacks partitions of {topic.name}")
            continue
        for number in range(len(topic.partitions)):
            partition = topic.partitions[number]
            here = by_place.pop((topic.name, number), None)
            if here is None and set(partition.replicas) - {plan.metadata.node_id}:
                replicas = ", ".join(map(str, partition.replicas))
                plan.problems.append(
                    f"{topic.name}-{number} is not in this directory but on nodes {replicas}"
                )
            elif here is not None and here.topic_id not in (None, topic.topic_id):
                plan.problems.append(
                    f"{topic.name}-{number} holds data of an older topic of that name; "
                    "move that directory away"
                )
            found_epoch = -1 if here is None else here.leader_epoch
            epochs.append(max(partition.leader_epoch, found_epoch))
        configs = kraft.topic_configs.get(topic.name, {})
        _check_configs(plan, topic.name, configs)
        plan.metadata.topics.append(AdoptedTopic(topic.name, topic.topic_id, epochs, configs))
    for topic_name, number in sorted(by_place):
        plan.lines.append(f"{topic_name}-{number} is of no topic that Kafka knows: left alone")
    _plan_broker_configs(plan, kraft)
    plan.metadata.next_producer_id = kraft.next_producer_id
    for what, count in sorted(kraft.left_out.items()):
        plan.lines.append(f"{count} {what} are not taken over")
    if kraft.torn_bytes:
        plan.lines.append(f"{kraft.torn_bytes} bytes at the end of Kafka's metadata are not whole")


def _plan_without_metadata(plan: AdoptionPlan, found: list[FoundPartition]) -> None:
    by_topic: dict[str, list[FoundPartition]] = {}
    for partition in sorted(found, key=lambda each: each.partition):
        by_topic.setdefault(partition.topic, []).append(partition)
    for name, partitions in sorted(by_topic.items()):
        missing = set(range(partitions[-1].partition)) - {each.partition for each in partitions}
        ids = {each.topic_id for each in partitions if each.topic_id is not None}
        if missing:
            plan.problems.append(f"{name}-{min(missing)} is missing; is it on another node?")
        elif len(ids) > 1:
            plan.problems.append(f"the partitions of {name} have different topic ids")
        else:
            epochs = [each.leader_epoch for each in partitions]
            topic = AdoptedTopic(name, ids.pop() if ids else None, epochs, dict(KEEP_EVERYTHING))
            plan.metadata.topics.append(topic)
    plan.metadata.next_producer_id = UNKNOWN_PRODUCER_ID_START


def _plan_broker_configs(plan: AdoptionPlan, kraft: KraftMetadata) -> None:
    for owner, configs in kraft.broker_configs.items():
        if owner not in (None, plan.metadata.node_id):
            continue
        usable = {}
        for name, value in sorted(configs.items()):
            problem = broker_config_problem(name, value)
            if owner is not None and name in ONLY_FOR_ALL_NODES:
                problem = f"{name} has one value for the whole cluster"
            if problem is None:
                usable[name] = value
            else:
                plan.lines.append(f"option of the node is not taken over: {problem}")
        if usable:
            plan.metadata.broker_configs[owner] = usable


def _check_configs(plan: AdoptionPlan, topic: str, configs: dict[str, str]) -> None:
    for name, value in sorted(configs.items()):
        problem = topic_config_problem(name, value)
        if problem is None:
            continue
        if name == "remote.storage.enable":
            plan.problems.append(f"topic {topic} has data elsewhere: {problem}")
        else:
            plan.lines.append(f"topic {topic}: option without effect: {problem}")


def _summary(plan: AdoptionPlan, config: BrokerConfig, *, has_metadata: bool) -> Iterator[str]:
    metadata = plan.metadata
    partitions = sum(len(topic.leader_epochs) for topic in metadata.topics)
    counts = f"{len(metadata.topics)} topics, {partitions} partitions"
    yield f"{plan.directory} was written by Kafka: {counts}"
    if metadata.cluster_id is not None:
        yield f"cluster id {metadata.cluster_id} and node id {metadata.node_id} stay as they are"
    for topic in metadata.topics:
        yield f"  {topic.name}: {len(topic.leader_epochs)} partitions, {_retention(topic, config)}"
    if has_metadata:
        yield f"topics, ids and options are copied from {METADATA_DIRECTORY}, which stays untouched"
        if any("retention.ms" not in topic.configs for topic in metadata.topics):
            yield (
                "topics without their own retention use this node's; if Kafka's "
                "server.properties said otherwise, give that file with --config"
            )
    else:
        yield (
            "Kafka's metadata is not here, so options are unknown: nothing of these topics is "
            "deleted or compacted until you set retention.ms, retention.bytes or cleanup.policy"
        )


def _retention(topic: AdoptedTopic, config: BrokerConfig) -> str:
    own = topic.configs.get("retention.ms")
    retention_ms = int(own) if own is not None else config.int("log.retention.ms")
    whose = "" if own is not None else " (this node's)"
    policy = topic.configs.get("cleanup.policy") or ",".join(config.list("log.cleanup.policy"))
    if "delete" not in policy:
        return f"{policy}, nothing is deleted by age"
    if retention_ms == -1:
        return f"{policy}, kept for ever{whose}"
    return f"{policy}, kept for {retention_ms / _DAY_MS:.3g} days{whose}"


def _read_meta(path: Path) -> dict[str, str]:
    try:
        return parse_properties(path.read_text())
    except FileNotFoundError:
        return {}


def _found_partitions(directory: Path) -> list[FoundPartition]:
    found = []
    for path in directory.iterdir():
        place = _partition_of(path.name)
        if place is None or not path.is_dir():
            continue
        topic_id = _topic_id(path / "partition.metadata")
        epoch = _last_epoch(path / "leader-epoch-checkpoint")
        found.append(FoundPartition(place[0], place[1], topic_id, epoch))
    return found


def _partition_of(name: str) -> tuple[str, int] | None:
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or name == METADATA_DIRECTORY:
        return None
    if topic_name_problem(match["topic"]) is not None:
        return None
    return match["topic"], int(match["partition"])


def _topic_id(path: Path) -> UUID | None:
    try:
        fields = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        return znodes.decode_uuid(fields["topic_id"].strip())
    except FileNotFoundError:
        return None
    except (KeyError, ValueError) as problem:
        raise ValueError(f"{path}: {problem}") from None


def _last_epoch(path: Path) -> int:
    """The newest leader epoch in the partition; -1 if its file does not say."""
    try:
        lines = path.read_text().split("\n")
        return max((int(line.split(" ")[0]) for line in lines[2:] if line), default=-1)
    except (FileNotFoundError, ValueError):
        return -1
