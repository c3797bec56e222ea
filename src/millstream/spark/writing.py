"""Writes at least once: a task writes its rows immediately, the driver adds nothing.

A task that Spark repeats writes its rows again.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from millstream.records.rows import Producer
from millstream.spark.cluster import Cluster
from millstream.spark.failure import SourceError
from millstream.spark.producing import BatchProducer
from millstream.spark.routing import Router
from millstream.spark.write_options import WriteOptions


@dataclass
class RowsWritten(WriterCommitMessage):
    count: int


def check_topic(options: WriteOptions) -> None:
    """Refuse a topic that does not exist before any row moves."""
    if options.topic is not None:
        count_partitions(Cluster(options.client), options.topic)


def count_partitions(cluster: Cluster, topic: str) -> int:
    found = cluster.describe_topics([topic]).get(topic)
    if found is None:
        raise SourceError(
            "UNKNOWN_TOPIC",
            f"Topic {topic} does not exist. Create it first (`millstream topic create {topic}`)",
        )
    return len(found.leaders)


def make_router(cluster: Cluster, options: WriteOptions) -> Router:
    known: dict[str, int] = {}

    def count(topic: str) -> int:
        if topic not in known:
            known[topic] = count_partitions(cluster, topic)
        return known[topic]

    return Router(
        count,
        topic=options.topic,
        has_headers=options.has_headers,
        # If all tasks began with partition 0, it would be the fullest.
        first_partition=random.randrange(1 << 16),
    )


def write_at_least_once(
    options: WriteOptions, batches: Iterator[pa.RecordBatch]
) -> WriterCommitMessage:
    cluster = Cluster(options.client)
    router = make_router(cluster, options)
    producer = Producer()
    if options.is_idempotent:
        identity = cluster.new_producer()
        producer = Producer(identity.producer_id, identity.epoch)
    writing = BatchProducer(cluster, options.produce, producer)
    try:
        for batch in batches:
            if batch.num_rows:
                writing.write(router.route(batch))
        writing.flush()
    finally:
        writing.close()
    return RowsWritten(writing.rows_written)
