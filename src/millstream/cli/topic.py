"""`millstream topic`: create, list, describe, delete, trim."""

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from millstream.cli.bootstrap import (
    REQUEST_SECONDS_MAX,
    bootstrap_option,
    bootstrap_option_beside_config,
    connect_admin,
    describe_topic,
    explain,
    json_option,
    wait_for,
)
from millstream.cli.confirming import ask_before_deleting
from millstream.cli.lazy import AliasGroup, LazyCommand
from millstream.cli.names import TOPIC
from millstream.cli.output import (
    JsonValue,
    echo,
    joined,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from confluent_kafka import TopicPartitionInfo
    from confluent_kafka.admin import (
        AdminClient,
        ListOffsetsResultInfo,
        OffsetSpec,
        TopicDescription,
    )

# A leader that is down is not waited for as long as a required response.
_OFFSET_SECONDS_MAX = 5.0
_MIN_ISR = "min.insync.replicas"


_COMMANDS = {
    "list": LazyCommand(
        "millstream.cli.topic_list", "list_topics", "List the topics of the cluster."
    ),
    "offsets": LazyCommand(
        "millstream.cli.topic_list", "offsets", "Show first and end offsets, and those at a time."
    ),
    "add-partitions": LazyCommand(
        "millstream.cli.topic_alter", "add_partitions", "Give a topic more partitions."
    ),
    "alter": LazyCommand("millstream.cli.topic_alter", "alter", "Change options of a topic."),
    "trim": LazyCommand(
        "millstream.cli.topic_trim", "trim", "Delete the records that groups have consumed."
    ),
}


@click.group(cls=AliasGroup, table=_COMMANDS)
def topic() -> None:
    """Create, list, describe, alter, trim and delete topics."""


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "-p",
    "--partitions",
    # The client library's maximum.
    type=click.IntRange(1, 100_000),
    help="Default: the broker's choice.",
)
@click.option("-r", "--replicas", type=click.IntRange(1), help="Default: the broker's choice.")
@click.option("-c", "--config", "settings", multiple=True, metavar="NAME=VALUE")
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic already exists.")
@json_option
@bootstrap_option_beside_config
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replicas: int | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Create topics.

    Example: millstream topic create orders -p 3 -c retention.ms=86400000
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    configs = dict(_parse_setting(setting) for setting in settings)
    admin = connect_admin(bootstrap)
    wanted = [
        NewTopic(name, partitions or -1, replication_factor=replicas or -1, config=configs)
        for name in names
    ]
    answers = admin.create_topics(wanted, request_timeout=REQUEST_SECONDS_MAX)
    created: dict[str, bool] = {}
    for name, future in answers.items():
        try:
            future.result(REQUEST_SECONDS_MAX + 5)
        except KafkaException as failed:
            error = failed.args[0]
            if not (if_not_exists and error.code() == KafkaError.TOPIC_ALREADY_EXISTS):
                raise explain(error, f"topic {name}") from None
            created[name] = False
        else:
            created[name] = True
            if not as_json:
                echo(f"created {name}", err=True)
    if as_json:
        print_json([{"name": name, "created": new} for name, new in created.items()])
    if _MIN_ISR in configs:
        replicas = replicas or len(describe_topic(admin, names[0]).partitions[0].replicas)
        warning = min_isr_warning(configs[_MIN_ISR], replicas)
        if warning is not None:
            echo(f"millstream: {warning}", err=True)


def min_isr_warning(value: str, replicas: int) -> str | None:
    """A value that can never be reached is accepted, as by Kafka, but is rarely intended."""
    if not value.isdigit() or int(value) <= replicas:
        return None
    return (
        f"{_MIN_ISR}={value} exceeds the number of replicas of a partition, {replicas}: it counts"
        f" as {replicas}, so acks=all waits for every replica"
    )


@topic.command()
@click.argument("name", type=TOPIC)
@json_option
@bootstrap_option
def describe(name: str, as_json: bool, bootstrap: str) -> None:
    """Show a topic's partitions, and the settings that differ from the defaults."""
    admin = connect_admin(bootstrap)
    description = describe_topic(admin, name)
    partitions = _partition_rows(admin, description)
    configs = _changed_configs(admin, name)
    if as_json:
        print_json(_as_json(description, partitions, configs))
        return
    echo(f"topic     {name}\nid        {_id_text(description.topic_id)}")
    for key, value in configs.items():
        echo(f"config    {key}={value}")
    echo(f"records   {_records_text(partitions)}\n")
    print_table(
        ["PARTITION", "LEADER", "REPLICAS", "IN-SYNC", "LOG-START-OFFSET", "LOG-END-OFFSET"],
        [
            (
                row.id,
                "none" if row.leader < 0 else row.leader,
                joined(row.replicas),
                joined(row.in_sync) or "none",
                _offset_text(row.start_offset),
                _offset_text(row.end_offset),
            )
            for row in partitions
        ],
    )


@topic.command()
@click.argument("names", nargs=-1, required=True, type=TOPIC, metavar="NAME...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@bootstrap_option
def delete(names: tuple[str, ...], yes: bool, as_json: bool, bootstrap: str) -> None:
    """Delete topics with all their records."""
    if not yes:
        ask_before_deleting("topics", names, "all records")
    admin = connect_admin(bootstrap)
    answers = admin.delete_topics(list(names), request_timeout=REQUEST_SECONDS_MAX)
    for name, future in answers.items():
        wait_for(future, f"topic {name}")
        if not as_json:
            echo(f"deleted {name}", err=True)
    if as_json:
        print_json([{"name": name} for name in names])


@dataclass(frozen=True, slots=True)
class PartitionRow:
    id: int
    leader: int
    replicas: list[int]
    in_sync: list[int]
    # None without an answer: the partition has no leader, or one that is down.
    start_offset: int | None
    end_offset: int | None

    @property
    def record_count(self) -> int | None:
        """Strictly, offsets: compaction and transactions leave gaps."""
        if self.start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.start_offset


def _partition_rows(admin: "AdminClient", description: "TopicDescription") -> list[PartitionRow]:
    from confluent_kafka.admin import OffsetSpec

    starts = _ask_offsets(admin, description, OffsetSpec.earliest())
    ends = _ask_offsets(admin, description, OffsetSpec.latest())
    return [
        PartitionRow(
            id=partition.id,
            leader=_leader_of(partition),
            replicas=[node.id for node in partition.replicas],
            in_sync=[node.id for node in partition.isr],
            start_offset=_offset_of(starts.get(partition.id)),
            end_offset=_offset_of(ends.get(partition.id)),
        )
        for partition in description.partitions
    ]


def _ask_offsets(
    admin: "AdminClient", description: "TopicDescription", which: "OffsetSpec"
) -> "dict[int, Future[ListOffsetsResultInfo]]":
    """By partition; one call for each leader, so that one that is down delays no other's."""
    from confluent_kafka import TopicPartition

    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in description.partitions:
        if (leader := _leader_of(partition)) >= 0:
            where = TopicPartition(description.name, partition.id)
            by_leader.setdefault(leader, []).append(where)
    answers: dict[int, Future[ListOffsetsResultInfo]] = {}
    for asked in by_leader.values():
        futures = admin.list_offsets(
            dict.fromkeys(asked, which), request_timeout=_OFFSET_SECONDS_MAX
        )
        answers.update({where.partition: future for where, future in futures.items()})
    return answers


def _offset_of(answer: "Future[ListOffsetsResultInfo] | None") -> int | None:
    from confluent_kafka import KafkaException

    if answer is None:
        return None
    try:
        return int(answer.result(_OFFSET_SECONDS_MAX + 1).offset)
    except (KafkaException, TimeoutError):
        return None


def _leader_of(partition: "TopicPartitionInfo") -> int:
    return partition.leader.id if partition.leader is not None else -1


def _changed_configs(admin: "AdminClient", name: str) -> dict[str, str]:
    from confluent_kafka.admin import ConfigEntry, ConfigResource, ConfigSource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, name)
    answers = admin.describe_configs([resource], request_timeout=REQUEST_SECONDS_MAX)
    future: Future[dict[str, ConfigEntry]] = answers[resource]
    entries = wait_for(future, f"topic {name}")
    return {
        key: str(entry.value)
        for key, entry in sorted(entries.items())
        # The library returns the number, not the enum member that its types promise.
        if ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }


def _as_json(
    description: "TopicDescription", partitions: list[PartitionRow], configs: dict[str, str]
) -> JsonValue:
    return {
        "name": description.name,
        "id": _id_text(description.topic_id),
        "configs": dict(configs),
        "partitions": [
            {
                "id": row.id,
                "leader": row.leader,
                "replicas": row.replicas,
                "in_sync": row.in_sync,
                "log_start_offset": row.start_offset,
                "log_end_offset": row.end_offset,
            }
            for row in partitions
        ],
    }


def _parse_setting(setting: str) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--config takes NAME=VALUE, not {setting!r}")
    return name, value


def _offset_text(offset: int | None) -> str:
    return "?" if offset is None else str(offset)


def _records_text(partitions: list[PartitionRow]) -> str:
    counts = [row.record_count for row in partitions]
    known = sum(count for count in counts if count is not None)
    unknown = counts.count(None)
    return str(known) if not unknown else f"{known}, without those of {unknown} that did not answer"


def _id_text(topic_id: object) -> str:
    """In the form of Kafka's tools and partition.metadata: librdkafka uses the other alphabet."""
    return str(topic_id).replace("+", "-").replace("/", "_")
