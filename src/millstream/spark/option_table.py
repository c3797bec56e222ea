"""Every option of the data source: one row each, the source of the checks and the docs."""

from enum import Flag, auto

from millstream.lazy_dataclass import dataclass


class Use(Flag):
    BATCH_READ = auto()
    STREAM_READ = auto()
    BATCH_WRITE = auto()
    STREAM_WRITE = auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE
    ALL = READ | WRITE


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    use: Use
    default: str
    sentence: str
    # Spark's own Kafka source has it too, with the same meaning.
    is_kafkas: bool = True


_READ, _BATCH, _STREAM = Use.READ, Use.BATCH_READ, Use.STREAM_READ

OPTIONS = (
    Option(
        "kafka.bootstrap.servers", Use.ALL, "", "Brokers to contact first: `host:port,host:port`."
    ),
    Option("subscribe", _READ, "", "Topics to read, by name, separated by commas."),
    Option("subscribePattern", _READ, "", "A Java-style regular expression that topics match."),
    Option("assign", _READ, "", 'Partitions to read: `{"topicA":[0,1],"topicB":[2]}`.'),
    Option(
        "startingTimestamp",
        _READ,
        "",
        "Milliseconds since 1970; start at the first record that is not older. Overrides the "
        "other two.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        _READ,
        "",
        'The same per partition: `{"topicA":{"0":1000,"1":1000}}`. Overrides `startingOffsets`.',
    ),
    Option(
        "startingOffsets",
        _READ,
        "latest for streams, earliest for batches",
        'Where to start: `earliest`, `latest`, or `{"topicA":{"0":23,"1":-2}}` with -2 for '
        "earliest and -1 for latest. A stream with a checkpoint continues from there instead.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        _READ,
        "error",
        "What to do if no record is as new as the starting timestamp: `error` or `latest`.",
    ),
    Option(
        "endingTimestamp",
        _BATCH,
        "",
        "Milliseconds since 1970; end before the first record that is not older.",
    ),
    Option("endingOffsetsByTimestamp", _BATCH, "", "The same per partition, as JSON."),
    Option(
        "endingOffsets",
        _BATCH,
        "latest",
        'Where to end: `latest`, or `{"topicA":{"0":23,"1":-1}}` with -1 for latest.',
    ),
    Option(
        "failOnDataLoss",
        _READ,
        "true",
        "Whether a read fails if expected records are gone.",
    ),
    Option("maxOffsetsPerTrigger", _STREAM, "none", "Maximum number of offsets in a micro-batch."),
    Option("minOffsetsPerTrigger", _STREAM, "none", "Wait until this many offsets are new."),
    Option("maxTriggerDelay", _STREAM, "15m", "The longest wait for `minOffsetsPerTrigger`."),
    Option(
        "maxBytesPerTrigger",
        _STREAM,
        "none",
        "Approximate bytes in a micro-batch, from the topic's average record size on disk.",
        is_kafkas=False,
    ),
    Option("minPartitions", _READ, "none", "Minimum number of Spark partitions, by splitting."),
    Option("maxRecordsPerPartition", _READ, "none", "Maximum number of offsets in a Spark task."),
    Option(
        "includeHeaders",
        Use.ALL,
        "false for reads, true for writes",
        "Whether a read has the column `headers`, and whether a write sends it if it exists.",
    ),
    Option(
        "columns",
        _READ,
        "all",
        "Only these columns, separated by commas. Spark does not pass the columns of a query to a "
        "Python source, so pruning is done by hand.",
        is_kafkas=False,
    ),
    Option(
        "path",
        _READ,
        "none",
        "A node's data directory, or a mount of it, that tasks can see: segments are read in "
        "place up to the broker's high watermark, and missing ones are fetched.",
        is_kafkas=False,
    ),
    Option(
        "offline",
        _BATCH,
        "false",
        "Read `path` without any broker, up to the high watermark that the node last wrote.",
        is_kafkas=False,
    ),
    Option(
        "commitGroup",
        _STREAM,
        "none",
        "A consumer group under which the query's progress is committed, so that lag tools see it.",
        is_kafkas=False,
    ),
    Option("groupIdPrefix", _READ, "spark-kafka-source", "Accepted; no group is joined here."),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        _READ,
        "120000",
        "How long a task waits for records without any progress.",
    ),
    Option("fetchOffset.numRetries", _READ, "3", "Accepted; retries are bounded by time here."),
    Option("fetchOffset.retryIntervalMs", _READ, "10", "Accepted; pauses grow from 50 ms to 1 s."),
    Option(
        "partition.metadata.cache.ttl.ms",
        _STREAM,
        "-1",
        "How long the list of topics and partitions is used before it is requested again.",
    ),
    Option("topic", Use.WRITE, "", "The topic for all rows; overrides a column `topic`."),
    Option(
        "semantics",
        Use.WRITE,
        "exactly-once for streams, at-least-once for batches",
        "`at-least-once` writes immediately; `exactly-once` shows a micro-batch whole and once.",
        is_kafkas=False,
    ),
    Option(
        "sinkName",
        Use.WRITE,
        "the topic, else rows",
        "Which of a query's outputs this is, for `exactly-once`.",
        is_kafkas=False,
    ),
    Option(
        "queryId",
        Use.BATCH_WRITE,
        "from Spark",
        "For `exactly-once` inside foreachBatch, if Spark does not provide it: the query's id.",
        is_kafkas=False,
    ),
    Option(
        "batchId",
        Use.BATCH_WRITE,
        "from Spark",
        "For `exactly-once` inside foreachBatch: the number of the micro-batch.",
        is_kafkas=False,
    ),
)

BY_NAME = {option.name.lower(): option for option in OPTIONS}

# Spark passes its own options of a stream on to the sink.
ASYNC_PROGRESS = "asyncprogresstrackingenabled"
SPARKS_OWN = frozenset(
    {
        "checkpointlocation",
        "queryname",
        "outputmode",
        ASYNC_PROGRESS,
        "asyncprogresstrackingcheckpointintervalms",
    }
)

# Spark's own source refuses these too: they would change what a read returns.
REFUSED_KAFKA_OPTIONS = {
    "auto.offset.reset": "set 'startingOffsets' to earliest or latest instead; Spark keeps track "
    "of the offsets",
    "key.deserializer": "keys are always binary; convert them with DataFrame operations",
    "value.deserializer": "values are always binary; convert them with DataFrame operations",
    "key.serializer": "keys are written as they are; convert them with DataFrame operations",
    "value.serializer": "values are written as they are; convert them with DataFrame operations",
    "enable.auto.commit": "Spark keeps track of the offsets; 'commitGroup' shows them to others",
    "interceptor.classes": "there is no Java consumer or producer to intercept",
    "partitioner.class": "rows are partitioned by key, as in Kafka's own partitioner; use the "
    "column 'partition' to choose",
}


def markdown_rows() -> list[str]:
    """The table of the documentation, line by line."""
    uses = (
        (Use.BATCH_READ, "read"),
        (Use.STREAM_READ, "stream read"),
        (Use.BATCH_WRITE, "write"),
        (Use.STREAM_WRITE, "stream write"),
    )
    rows = []
    for option in OPTIONS:
        if option.use is Use.ALL:
            used = "all"
        else:
            used = ", ".join(name for use, name in uses if option.use & use)
        own = "" if option.is_kafkas else " (ours)"
        rows.append(f"| `{option.name}`{own} | {used} | {option.default} | {option.sentence} |")
    return rows
