"""`millstream txn`: list, describe and abort transactions, and find those that hang.

A transaction hangs if its records are in a partition and no coordinator will ever end it.
read_committed consumers then stop there forever.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.connection import Cluster, check
from millstream.cli.failure import CommandFailed
from millstream.cli.output import JsonValue, print_json, print_outcome, print_table
from millstream.client.blocking import Address
from millstream.errors import KafkaCode
from millstream.wire.apis.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from millstream.wire.apis.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
)
from millstream.wire.apis.init_producer_id import InitProducerIdRequest
from millstream.wire.apis.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from millstream.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

# Longer than any transaction may take, by the default of transaction.max.timeout.ms.
_OLD_MINUTES: Final = 15
_RETRY_SECONDS: Final = 0.05
_RETRIES_MAX: Final = 200
_OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


@click.group()
def txn() -> None:
    """List, describe and abort transactions."""


@txn.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Ongoing, for example.")
@json_option
@bootstrap_option
def list_transactions(states: tuple[str, ...], as_json: bool, bootstrap: str) -> None:
    """List transactional ids and their states."""
    with Cluster(bootstrap) as cluster:
        found = [
            one
            for node in cluster.nodes()
            for one in _listed(cluster, node, states=list(states)).transaction_states
        ]
    found.sort(key=lambda one: one.transactional_id)
    rows = [(one.transactional_id, one.producer_id, one.transaction_state) for one in found]
    if as_json:
        names = ("transactional_id", "producer_id", "state")
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    print_table(("TRANSACTIONAL-ID", "PRODUCER-ID", "STATE"), rows)


def _listed(
    cluster: Cluster,
    node: Address,
    *,
    states: list[str] | None = None,
    producer_ids: list[int] | None = None,
) -> ListTransactionsResponse:
    request = ListTransactionsRequest(
        state_filters=states or [], producer_id_filters=producer_ids or []
    )
    answer = cluster.ask(node, request, 0)
    check(answer.error_code, "transactions")
    if answer.unknown_state_filters:
        raise CommandFailed(f"unknown state {answer.unknown_state_filters[0]}")
    return answer


@txn.command()
@click.argument("transactional_id", metavar="ID")
@json_option
@bootstrap_option
def describe(transactional_id: str, as_json: bool, bootstrap: str) -> None:
    """Show the state of a transactional id and the partitions of its transaction."""
    with Cluster(bootstrap) as cluster:
        found = _described(cluster, transactional_id)
    partitions: list[JsonValue] = [
        f"{one.topic}-{index}" for one in found.topics for index in one.partitions
    ]
    fields: dict[str, JsonValue] = {
        "transactional_id": transactional_id,
        "state": found.transaction_state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.transaction_timeout_ms,
        "started_ms": found.transaction_start_time_ms,
        "partitions": partitions,
    }
    if as_json:
        print_json(fields)
        return
    rows = [(name.replace("_", "-"), value) for name, value in fields.items()]
    rows[-1] = ("partitions", " ".join(map(str, partitions)) or "none")
    print_table(("FIELD", "VALUE"), rows)


def _described(cluster: Cluster, transactional_id: str) -> DescribedTransaction:
    node = cluster.transaction_coordinator(transactional_id)
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    answer = cluster.ask(node, request, 0)
    [found] = answer.transaction_states
    if found.error_code == KafkaCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise CommandFailed(
            f"the transactional id {transactional_id} was never used."
            " `millstream txn list` shows the ids in use"
        )
    check(found.error_code, transactional_id)
    return found


@txn.command()
@click.argument("transactional_id", metavar="[ID]", required=False)
@click.option("--topic", help="With --partition and --producer-id: a hanging transaction.")
@click.option("--partition", type=click.IntRange(0))
@click.option("--producer-id", type=click.IntRange(0))
@json_option
@bootstrap_option
def abort(
    transactional_id: str | None,
    topic: str | None,
    partition: int | None,
    producer_id: int | None,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Abort the open transaction of an id; its producer is fenced.

    A hanging transaction has no coordinator any more. Name its place:
    millstream txn abort --topic T --partition 0 --producer-id 7
    """
    with Cluster(bootstrap) as cluster:
        if transactional_id is not None and topic is None:
            _abort_id(cluster, transactional_id)
            done = f"aborted the open transaction of {transactional_id}"
        elif topic is not None and partition is not None and producer_id is not None:
            _abort_hanging(cluster, topic, partition, producer_id)
            done = f"ended the transaction of {producer_id} in {topic}-{partition}"
        else:
            raise click.UsageError("name an ID, or --topic, --partition and --producer-id")
    aborted: dict[str, JsonValue] = {
        "transactional_id": transactional_id,
        "topic": topic,
        "partition": partition,
        "producer_id": producer_id,
    }
    print_outcome(done, aborted, as_json=as_json)


def _abort_id(cluster: Cluster, transactional_id: str) -> None:
    """Take over the id, as a new producer would: that fences and aborts."""
    known = _described(cluster, transactional_id)
    if known.transaction_state not in _OPEN:
        raise CommandFailed(f"{transactional_id} has no open transaction")
    node = cluster.transaction_coordinator(transactional_id)
    for _ in range(_RETRIES_MAX):
        answer = cluster.ask(
            node,
            InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=known.transaction_timeout_ms,
            ),
            4,
        )
        if answer.error_code != KafkaCode.CONCURRENT_TRANSACTIONS:
            check(answer.error_code, transactional_id)
            return
        # The transaction is being ended; the coordinator cannot say when it is done.
        time.sleep(_RETRY_SECONDS)
    raise CommandFailed(f"{transactional_id}: its transaction does not end")


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction in one partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_timestamp_ms: int


def _open_transactions(cluster: Cluster, *topics: str) -> Iterator[OpenTransaction]:
    metadata = cluster.metadata(*topics)
    nodes = {one.node_id: Address(one.host, one.port) for one in metadata.brokers}
    for topic in metadata.topics:
        name = topic.name or ""
        check(topic.error_code, f"topic {name}")
        for part in topic.partitions:
            if part.leader_id not in nodes:
                continue
            wanted = DescribeProducersTopic(name=name, partition_indexes=[part.partition_index])
            request = DescribeProducersRequest(topics=[wanted])
            answer = cluster.ask(nodes[part.leader_id], request, 0)
            [partition_row] = answer.topics[0].partitions
            check(
                partition_row.error_code,
                f"{name}-{part.partition_index}",
                partition_row.error_message,
            )
            for one in partition_row.active_producers:
                if one.current_txn_start_offset >= 0:
                    yield OpenTransaction(
                        name,
                        part.partition_index,
                        one.producer_id,
                        one.producer_epoch,
                        one.coordinator_epoch,
                        one.current_txn_start_offset,
                        one.last_timestamp,
                    )


@txn.command()
@click.option(
    "--older-than-minutes",
    type=click.IntRange(0),
    default=_OLD_MINUTES,
    show_default=True,
    help="Minimum time without a write.",
)
@json_option
@bootstrap_option
def hanging(older_than_minutes: int, as_json: bool, bootstrap: str) -> None:
    """Find transactions that no coordinator is going to end."""
    oldest_ms = int(time.time() * 1000) - older_than_minutes * 60_000
    with Cluster(bootstrap) as cluster:
        old = [one for one in _open_transactions(cluster) if one.last_timestamp_ms <= oldest_ms]
        found = [one for one in old if not _has_coordinator(cluster, one)]
    if as_json:
        print_json([asdict(one) for one in found])
        return
    print_table(
        ("TOPIC", "PARTITION", "PRODUCER-ID", "FIRST-OFFSET"),
        [(one.topic, one.partition, one.producer_id, one.first_offset) for one in found],
    )


def _has_coordinator(cluster: Cluster, one: OpenTransaction) -> bool:
    """Whether the producer has an open transaction that includes the partition."""
    for node in cluster.nodes():
        listed = _listed(cluster, node, states=list(_OPEN), producer_ids=[one.producer_id])
        for each in listed.transaction_states:
            known = _described(cluster, each.transactional_id)
            if any(
                topic.topic == one.topic and one.partition in topic.partitions
                for topic in known.topics
            ):
                return True
    return False


def _abort_hanging(cluster: Cluster, topic: str, partition: int, producer_id: int) -> None:
    for one in _open_transactions(cluster, topic):
        if (one.partition, one.producer_id) == (partition, producer_id):
            break
    else:
        raise CommandFailed(
            f"producer {producer_id} has no open transaction in {topic}-{partition}."
            " `millstream txn hanging` shows hanging ones"
        )
    if _has_coordinator(cluster, one):
        raise CommandFailed(
            f"the transaction of producer {producer_id} does not hang: its coordinator will"
            " end it. Abort it by its transactional id"
        )
    metadata = cluster.metadata(topic)
    leader_id = metadata.topics[0].partitions[partition].leader_id
    [node] = [
        Address(each.host, each.port) for each in metadata.brokers if each.node_id == leader_id
    ]
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=one.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        coordinator_epoch=one.coordinator_epoch,
    )
    answer = cluster.ask(node, WriteTxnMarkersRequest(markers=[marker]), 1)
    check(answer.markers[0].topics[0].partitions[0].error_code, f"{topic}-{partition}")
