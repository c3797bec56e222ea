"""Micro-batches that become visible whole, and once, whatever crashes and is repeated.

Spark runs a batch again, under the same query id and batch number, until it has written
down that the batch is done. So the number is committed in the same transaction as the
rows, under `<query id>/<sink name>`, and a batch whose number is there is left out.

A task with few rows sends them to the driver in its commit message; the driver writes them
in one transaction. A task with many writes them itself, in a transaction of its own that
it leaves open; the driver then commits all of them by one request (Millstream only).
Nothing is undone in `abort`: Spark calls it after a commit that took effect, too.
"""

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from millstream.model import TopicPartition
from millstream.records.rows import Producer
from millstream.spark.cluster import Cluster, ProducerIdentity
from millstream.spark.failure import SourceError
from millstream.spark.group_commit import (
    Member,
    commit_group,
    last_batch,
    member_name,
    offers_group_commit,
)
from millstream.spark.producing import BatchProducer
from millstream.spark.routing import Router
from millstream.spark.transactions import CommittedBatch, Transaction, last_committed
from millstream.spark.write_options import WriteOptions
from millstream.spark.writing import make_router

log = logging.getLogger(__name__)

# Rows of a task that are sent to the driver: up to here that is as fast as writing them there.
CARRIED_BYTES_MAX: Final = 4 << 20
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
# Spark runs the jobs of a streaming query in a job group with the id of the run.
_RUN_ID = "spark.jobGroup.id"


@dataclass(frozen=True, slots=True)
class BatchContext:
    """Which micro-batch of which query a task works for."""

    query_id: str
    run_id: str
    batch_id: int


@dataclass
class CarriedRows(WriterCommitMessage):
    context: BatchContext
    # An Arrow stream.
    rows: bytes


@dataclass
class OpenTransaction(WriterCommitMessage):
    context: BatchContext
    member: Member
    # One that got rows.
    partition: TopicPartition


def find_context(options: WriteOptions) -> BatchContext:
    """From the task, or from the options if the caller sets them."""
    context = TaskContext.get()
    query_id, batch_id = options.query_id, options.batch_id
    run_id = ""
    if context is not None and context.getLocalProperty(_QUERY_ID) is not None:
        query_id = query_id or context.getLocalProperty(_QUERY_ID)
        found_id = context.getLocalProperty(_BATCH_ID)
        batch_id = int(found_id) if batch_id is None and found_id is not None else batch_id
        run_id = _checked_run(context.getLocalProperty(_RUN_ID))
    if query_id is None or batch_id is None:
        raise SourceError(
            "NO_MICRO_BATCH",
            "'semantics'='exactly-once' needs to know the micro-batch. In a streaming query and "
            "in foreachBatch Spark provides it; elsewhere set the options 'queryId' and 'batchId', "
            "or 'semantics'='at-least-once'",
        )
    return BatchContext(query_id, run_id, batch_id)


def _checked_run(job_group: str | None) -> str:
    try:
        uuid.UUID(job_group or "")
    except ValueError:
        raise SourceError(
            "UNKNOWN_RUN",
            f"The job group is {job_group!r}, but 'semantics'='exactly-once' identifies a "
            "query's run by Spark's own job group. Do not call setJobGroup in foreachBatch, or use "
            "addJobTag instead",
        ) from None
    assert job_group is not None
    return job_group


def group_name(options: WriteOptions, query_id: str) -> str:
    return f"{query_id}/{options.sink_name}"


# -- in a task -------------------------------------------------------------------------------


def write_exactly_once(
    options: WriteOptions, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    context = find_context(options)
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes > CARRIED_BYTES_MAX:
            return _write_in_transaction(options, context, chain(held, batches))
    return CarriedRows(context, _to_stream(held))


def _write_in_transaction(
    options: WriteOptions, context: BatchContext, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    cluster = Cluster(options.client)
    if not offers_group_commit(cluster):
        raise SourceError(
            "BATCH_TOO_LARGE",
            f"A task has more than {CARRIED_BYTES_MAX >> 20} MB of rows for one micro-batch, and "
            "this broker cannot commit the transactions of several tasks together. Make batches "
            "smaller ('maxOffsetsPerTrigger'), use more tasks (repartition), or set "
            "'semantics'='at-least-once'. Nothing of this batch was committed",
        )
    group = group_name(options, context.query_id)
    if last_batch(cluster, group, context.run_id) >= context.batch_id:
        for _ in batches:
            pass
        return CarriedRows(context, b"")
    task = TaskContext.get()
    number = "0.0" if task is None else f"{task.partitionId()}.{task.attemptNumber()}"
    transaction = Transaction.begin(
        cluster, member_name(group, number), timeout_ms=options.transaction_timeout_ms
    )
    try:
        router = make_router(cluster, options)
        where = _produce(options, cluster, transaction, router, batches)
    except BaseException:
        _try_abort(transaction)
        raise
    assert where is not None, "a task without rows has no transaction"
    return OpenTransaction(context, _member(transaction), where)


def _try_abort(transaction: Transaction) -> None:
    """read_committed consumers wait for open transactions; do not make them wait longer."""
    try:
        transaction.abort()
    except SourceError as failed:
        log.warning("%s stays open until its timeout: %s", transaction.transactional_id, failed)


def _member(transaction: Transaction) -> Member:
    identity = transaction.identity
    return Member(transaction.transactional_id, identity.producer_id, identity.epoch)


def _produce(
    options: WriteOptions,
    cluster: Cluster,
    transaction: Transaction,
    router: Router,
    batches: Iterator[pa.RecordBatch],
) -> TopicPartition | None:
    """Write rows in a transaction; return the first partition that got any."""
    identity: ProducerIdentity = transaction.identity
    first: TopicPartition | None = None
    writing = BatchProducer(
        cluster,
        options.produce,
        Producer(identity.producer_id, identity.epoch, is_transactional=True),
        transactional_id=transaction.transactional_id,
        join=transaction.join,
    )
    try:
        for batch in batches:
            if batch.num_rows:
                routed = list(router.route(batch))
                first = first or routed[0].partition
                writing.write(routed)
        writing.flush()
    finally:
        writing.close()
    return first


def carry(context: BatchContext, batches: list[pa.RecordBatch]) -> CarriedRows:
    """Rows that the driver has itself, as if a task had sent them."""
    return CarriedRows(context, _to_stream(batches))


def _to_stream(batches: list[pa.RecordBatch]) -> bytes:
    if not batches:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(sink.getvalue())


# -- in the driver ---------------------------------------------------------------------------


def commit_exactly_once(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None]
) -> None:
    """Make a batch visible, unless it already is."""
    contexts = {m.context for m in messages if isinstance(m, CarriedRows | OpenTransaction)}
    if not contexts:
        return
    assert len(contexts) == 1, "tasks of several micro-batches in one commit"
    [context] = contexts
    open_ones = [m for m in messages if isinstance(m, OpenTransaction)]
    streams = [m.rows for m in messages if isinstance(m, CarriedRows) and m.rows]
    cluster = Cluster(options.client)
    group = group_name(options, context.query_id)
    has_group_commit = offers_group_commit(cluster)
    if has_group_commit:
        # Before `begin`, with which a replaced driver would fence its successor.
        last_batch(cluster, group, context.run_id)
    transaction = Transaction.begin(
        cluster, member_name(group, "driver"), timeout_ms=options.transaction_timeout_ms
    )
    # After `begin`: what an earlier driver left half done is decided by now.
    if _is_done(cluster, group, context, options):
        log.info("batch %d of %s was committed before", context.batch_id, group)
        return
    if not streams and not open_ones:
        return
    try:
        router = make_router(cluster, options)
        where = _produce(options, cluster, transaction, router, _from_streams(streams))
        where = where or open_ones[0].partition
        transaction.record(group, where, CommittedBatch(context.batch_id, context.run_id))
    except BaseException:
        _try_abort(transaction)
        raise
    if has_group_commit:
        # Even if there is only one: open transactions of failed attempts are aborted.
        members = [*(m.member for m in open_ones), _member(transaction)]
        commit_group(cluster, group, context.run_id, context.batch_id, members)
    else:
        transaction.commit()


def _is_done(cluster: Cluster, group: str, context: BatchContext, options: WriteOptions) -> bool:
    last = last_committed(cluster, group)
    if last is None or last.batch_id < context.batch_id:
        return False
    # A run commits each batch once; a second time is another write under the same name.
    if last.run_id and last == CommittedBatch(context.batch_id, context.run_id):
        raise SourceError(
            "SINK_NAME_TWICE",
            f"Two writes of micro-batch {context.batch_id} have the sink name "
            f"'{options.sink_name}'; the rows of the second would look like a repetition of the "
            "first. Give each write of a foreachBatch its own option 'sinkName'",
        )
    return True


def _from_streams(streams: list[bytes]) -> Iterator[pa.RecordBatch]:
    for stream in streams:
        yield from pa.ipc.open_stream(stream)
