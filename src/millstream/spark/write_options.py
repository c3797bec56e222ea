"""The options and the columns of a write, checked before any row moves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from millstream.model import Codec, topic_name_problem
from millstream.spark.cluster import ClientSettings
from millstream.spark.failure import SourceError, option_error
from millstream.spark.option_table import ASYNC_PROGRESS, Use
from millstream.spark.options import boolean_option, check_names, read_client_settings
from millstream.spark.producing import BATCH_BYTES_MAX, ProduceSettings

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
_ACKS: Final = {"all": -1, "-1": -1, "1": 1}
_BYTES: Final = (StringType(), BinaryType())


@dataclass(frozen=True, slots=True)
class WriteOptions:
    client: ClientSettings
    produce: ProduceSettings
    is_idempotent: bool
    is_exactly_once: bool
    topic: str | None
    has_headers: bool
    sink_name: str
    # Given by hand inside foreachBatch; None if Spark provides it.
    query_id: str | None
    batch_id: int | None
    transaction_timeout_ms: int


def parse_write_options(options: Mapping[str, str], schema: StructType, use: Use) -> WriteOptions:
    check_names(options, use)
    topic = options.get("topic")
    if topic is not None:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise option_error("topic", problem)
    has_headers = boolean_option(options, "includeHeaders", default=True)
    check_columns(schema, has_topic_option=topic is not None, has_headers=has_headers)
    is_stream = bool(use & Use.STREAM_WRITE)
    semantics = options.get("semantics", EXACTLY_ONCE if is_stream else AT_LEAST_ONCE).lower()
    if semantics not in (AT_LEAST_ONCE, EXACTLY_ONCE):
        raise option_error("semantics", f"must be '{AT_LEAST_ONCE}' or '{EXACTLY_ONCE}'")
    produce = _produce_settings(options)
    is_idempotent = options.get("kafka.enable.idempotence", "true").lower() != "false"
    if semantics == EXACTLY_ONCE and (produce.acks != -1 or not is_idempotent):
        raise option_error(
            "semantics", "'exactly-once' needs kafka.acks=all and kafka.enable.idempotence=true"
        )
    if semantics == EXACTLY_ONCE and options.get(ASYNC_PROGRESS, "false").lower() == "true":
        raise option_error(
            "asyncProgressTrackingEnabled",
            "a repeated batch may then have other rows, so it cannot be written exactly "
            "once. Remove the option, or set 'semantics'='at-least-once'",
        )
    batch_id = options.get("batchId")
    if batch_id is not None and not batch_id.isdecimal():
        raise option_error("batchId", f"'{batch_id}' is not the number of a micro-batch")
    return WriteOptions(
        client=read_client_settings(options),
        produce=produce,
        is_idempotent=is_idempotent and produce.acks == -1,
        is_exactly_once=semantics == EXACTLY_ONCE,
        topic=topic,
        has_headers=has_headers,
        sink_name=options.get("sinkName") or topic or "rows",
        query_id=options.get("queryId"),
        batch_id=None if batch_id is None else int(batch_id),
        transaction_timeout_ms=_whole(options, "kafka.transaction.timeout.ms", 300_000),
    )


def _produce_settings(options: Mapping[str, str]) -> ProduceSettings:
    acks = options.get("kafka.acks", "all").lower()
    if acks not in _ACKS:
        raise option_error(
            "kafka.acks", "must be 'all' or '1'; with '0' rows would be lost silently"
        )
    codec = options.get("kafka.compression.type", "none").upper()
    if codec not in Codec.__members__:
        names = ", ".join(name.lower() for name in Codec.__members__)
        raise option_error("kafka.compression.type", f"must be one of {names}")
    request_bytes = _whole(options, "kafka.max.request.size", BATCH_BYTES_MAX)
    return ProduceSettings(
        acks=_ACKS[acks],
        codec=Codec[codec],
        # Kafka's batch.size is a lower bound for waiting; batches here are as large as the rows
        # allow, up to what one request may carry.
        batch_bytes_max=min(request_bytes, BATCH_BYTES_MAX),
        delivery_seconds_max=_whole(options, "kafka.delivery.timeout.ms", 120_000) / 1000,
    )


def _whole(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default)).strip()
    if not text.isdecimal() or int(text) == 0:
        raise option_error(name, f"'{text}' is not a positive number")
    return int(text)


def check_columns(schema: StructType, *, has_topic_option: bool, has_headers: bool) -> None:
    """Refuse rows that cannot become records. Other columns are ignored, as by Spark's source."""
    types: dict[str, DataType] = {field.name: field.dataType for field in schema}
    if "value" not in types:
        raise _schema_error(f"needs a column 'value'; there are: {', '.join(types) or 'none'}")
    if not has_topic_option and "topic" not in types:
        raise _schema_error("needs the option 'topic' or a column 'topic'")
    for name in ("key", "value"):
        if name in types and types[name] not in _BYTES:
            raise _schema_error(
                f"needs text or bytes in the column '{name}', not {types[name].simpleString()}; "
                f"for example CAST({name} AS STRING) or to_json({name})"
            )
    if not has_topic_option and types["topic"] != StringType():
        raise _schema_error(f"needs text in 'topic', not {types['topic'].simpleString()}")
    if "partition" in types and types["partition"] != IntegerType():
        raise _schema_error(f"needs an int in 'partition', not {types['partition'].simpleString()}")
    if has_headers and "headers" in types and not _are_headers(types["headers"]):
        raise _schema_error(
            "needs array<struct<key:string,value:binary>> in 'headers', not "
            f"{types['headers'].simpleString()}"
        )


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, field.dataType) for field in kind.elementType]
    return fields == [("key", StringType()), ("value", BinaryType())]


def _schema_error(text: str) -> SourceError:
    return SourceError("WRONG_COLUMNS", f"A write to topics {text}")
