"""The options of a read or a write, checked, as values. No broker is contacted here."""

import json
import logging
import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from millstream.client.blocking import Address
from millstream.client.security import Security, SecurityError, read_security
from millstream.lazy_dataclass import dataclass
from millstream.model import TopicPartition, topic_name_problem
from millstream.spark.cluster import EARLIEST, LATEST, ClientSettings, FetchSettings
from millstream.spark.failure import SourceError, option_error
from millstream.spark.layout import COLUMNS, HEADERS_COLUMN, Layout
from millstream.spark.option_table import BY_NAME, REFUSED_KAFKA_OPTIONS, SPARKS_OWN, Use

log = logging.getLogger(__name__)

# The limits of the protocol and of Spark.
_LONG_MAX: Final = 2**63 - 1
_SELECTIONS: Final = ("assign", "subscribe", "subscribepattern")
_UNITS_MS: Final = {
    "us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


class Place(Enum):
    EARLIEST = auto()
    LATEST = auto()
    # Per partition; -2 and -1 stand for the two above.
    OFFSETS = auto()
    TIMESTAMP = auto()
    TIMESTAMPS = auto()


@dataclass(frozen=True, slots=True)
class Position:
    """Where a read begins or ends, as the user specified it."""

    place: Place
    option: str
    timestamp_ms: int = 0
    by_partition: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """Which partitions are read: exactly one of the three is set."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    client: ClientSettings
    fetch: FetchSettings
    selection: Selection
    starting: Position
    ending: Position
    takes_latest_without_match: bool
    layout: Layout
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    bytes_per_trigger_max: int | None
    trigger_delay_ms_max: int
    partitions_min: int | None
    records_per_partition_max: int | None
    commit_group: str | None
    topics_cache_ms: int
    # A data directory that tasks can see.
    path: str | None
    is_offline: bool


def check_names(options: Mapping[str, str], use: Use) -> None:
    """Refuse options without a meaning here, before the rest is used."""
    for name in options:
        lower = name.lower()
        known = BY_NAME.get(lower)
        if lower.startswith("kafka."):
            why = REFUSED_KAFKA_OPTIONS.get(lower.removeprefix("kafka."))
            if why is not None:
                raise option_error(name, f"is not supported: {why}")
        elif lower in SPARKS_OWN:
            continue
        elif known is None:
            close = [row.name for row in BY_NAME.values() if _is_close(lower, row.name.lower())]
            hint = f" Did you mean {' or '.join(close)}?" if close else ""
            raise SourceError("UNKNOWN_OPTION", f"Unknown option '{name}'.{hint}")
        elif not known.use & use:
            if use is Use.BATCH_READ and known.use & Use.READ and known.is_kafkas:
                # As in Spark's own source, so that both kinds of read can share options.
                log.warning("option '%s' is ignored in a batch read", known.name)
                continue
            raise option_error(known.name, f"has no meaning in a {_spoken(use)}; remove it")


def _spoken(use: Use) -> str:
    kind = "streaming" if use & (Use.STREAM_READ | Use.STREAM_WRITE) else "batch"
    return f"{kind} {'read' if use & Use.READ else 'write'}"


def _is_close(name: str, other: str) -> bool:
    import difflib

    return difflib.SequenceMatcher(None, name, other).ratio() > 0.8


def layout_of(options: Mapping[str, str]) -> Layout:
    """The columns of a read."""
    names: tuple[str, ...] = COLUMNS
    if boolean_option(options, "includeHeaders", default=False):
        names = (*COLUMNS, HEADERS_COLUMN)
    wanted = options.get("columns")
    if wanted is None:
        return Layout(names)
    chosen = tuple(part.strip() for part in wanted.split(","))
    by_lower = {name.lower(): name for name in (*COLUMNS, HEADERS_COLUMN)}
    for name in chosen:
        if name.lower() not in by_lower:
            raise option_error("columns", f"unknown column '{name}'; there are {', '.join(names)}")
    if len(set(map(str.lower, chosen))) != len(chosen):
        raise option_error("columns", "names a column twice")
    return Layout(tuple(by_lower[name.lower()] for name in chosen))


def read_client_settings(options: Mapping[str, str]) -> ClientSettings:
    kafka_options = {
        name.lower().removeprefix("kafka."): value
        for name, value in options.items()
        if name.lower().startswith("kafka.")
    }
    servers = kafka_options.get("bootstrap.servers", "")
    if not servers.strip():
        raise option_error(
            "kafka.bootstrap.servers",
            "must be set. (Spark passes no options to a table made by CREATE TABLE ... USING "
            "millstream. Use CREATE TEMPORARY VIEW ... USING millstream OPTIONS (...), or set "
            "them in the statement: SELECT ... FROM the_table WITH (...), INSERT INTO the_table "
            "WITH (...) ...)",
        )
    return ClientSettings(
        bootstrap=tuple(_address(part.strip()) for part in servers.split(",") if part.strip()),
        security=_security(kafka_options),
        call_seconds_max=_seconds(kafka_options, "default.api.timeout.ms", 60_000),
        request_seconds_max=_seconds(kafka_options, "request.timeout.ms", 30_000),
    )


def _security(kafka_options: Mapping[str, str]) -> Security:
    try:
        return read_security(kafka_options, option_prefix="kafka.")
    except SecurityError as wrong:
        raise SourceError(wrong.error_class, str(wrong)) from wrong


def _seconds(kafka_options: Mapping[str, str], name: str, default_ms: int) -> float:
    text = kafka_options.get(name, str(default_ms))
    if not text.strip().isdecimal():
        raise option_error(f"kafka.{name}", f"'{text}' is not a number of milliseconds")
    return int(text) / 1000


def _address(text: str) -> Address:
    text = re.sub(r"^[A-Z_]+://", "", text)
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise option_error("kafka.bootstrap.servers", f"'{text}' is not host:port")
    return Address(host.strip("[]"), int(port))


def parse_read_options(options: Mapping[str, str], use: Use) -> ReadOptions:
    """All options of a read; SourceError names the first that is wrong."""
    check_names(options, use)
    is_offline = boolean_option(options, "offline", default=False)
    if is_offline and not options.get("path"):
        raise option_error("offline", "needs the option 'path'")
    client = ClientSettings(()) if is_offline else read_client_settings(options)
    most = _count(options, "maxOffsetsPerTrigger")
    least = _count(options, "minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise option_error("minOffsetsPerTrigger", "must not be larger than 'maxOffsetsPerTrigger'")
    strategy = options.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise option_error("startingOffsetsByTimestampStrategy", "must be 'error' or 'latest'")
    isolation = options.get("kafka.isolation.level", "read_uncommitted").lower()
    if isolation not in ("read_uncommitted", "read_committed"):
        raise option_error(
            "kafka.isolation.level", "must be 'read_uncommitted' or 'read_committed'"
        )
    return ReadOptions(
        client=client,
        fetch=FetchSettings(
            is_committed_only=isolation == "read_committed",
            fails_on_data_loss=boolean_option(options, "failOnDataLoss", default=True),
            stall_seconds_max=(_count(options, "kafkaConsumer.pollTimeoutMs") or 120_000) / 1000,
        ),
        selection=_selection(options),
        starting=_starting(options, use),
        ending=_ending(options),
        takes_latest_without_match=strategy == "latest",
        layout=layout_of(options),
        offsets_per_trigger_max=most,
        offsets_per_trigger_min=least,
        bytes_per_trigger_max=_count(options, "maxBytesPerTrigger"),
        trigger_delay_ms_max=_duration_ms(options, "maxTriggerDelay", "15m"),
        partitions_min=_count(options, "minPartitions"),
        records_per_partition_max=_count(options, "maxRecordsPerPartition"),
        commit_group=options.get("commitGroup") or None,
        path=options.get("path") or None,
        is_offline=is_offline,
        topics_cache_ms=_number(options, "partition.metadata.cache.ttl.ms", -1),
    )


def _selection(options: Mapping[str, str]) -> Selection:
    given = [BY_NAME[name].name for name in _SELECTIONS if name in options]
    if len(given) != 1:
        raise SourceError(
            "INVALID_OPTION",
            f"Exactly one of the options assign, subscribe and subscribePattern must be set; "
            f"{'none is' if not given else ' and '.join(given) + ' are'}",
        )
    if "subscribe" in options:
        topics = [part.strip() for part in options["subscribe"].split(",") if part.strip()]
        if not topics:
            raise option_error("subscribe", "names no topic")
        for topic in topics:
            problem = topic_name_problem(topic)
            if problem is not None:
                raise option_error("subscribe", problem)
        return Selection(topics=tuple(dict.fromkeys(topics)))
    if "subscribePattern" in options:
        pattern = options["subscribePattern"].strip()
        try:
            re.compile(pattern)
        except re.error as wrong:
            raise option_error("subscribePattern", f"'{pattern}': {wrong}") from wrong
        if not pattern:
            raise option_error("subscribePattern", "is empty")
        return Selection(pattern=pattern)
    return Selection(partitions=_assigned(options["assign"]))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    value = _json(text, "assign", '{"topicA":[0,1],"topicB":[2,4]}')
    found = []
    for topic, numbers in value.items():
        if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
            raise option_error("assign", f"topic '{topic}' needs a list of partition numbers")
        found += [TopicPartition(topic, number) for number in numbers]
    if not found:
        raise option_error("assign", "names no partition")
    return tuple(sorted(set(found)))


def _starting(options: Mapping[str, str], use: Use) -> Position:
    if "startingTimestamp" in options:
        timestamp_ms = _timestamp(options, "startingTimestamp")
        return Position(Place.TIMESTAMP, "startingTimestamp", timestamp_ms)
    if "startingOffsetsByTimestamp" in options:
        offsets = _by_partition(options, "startingOffsetsByTimestamp", least=0)
        return Position(Place.TIMESTAMPS, "startingOffsetsByTimestamp", by_partition=offsets)
    is_stream = bool(use & Use.STREAM_READ)
    text = options.get("startingOffsets", "latest" if is_stream else "earliest").strip()
    if text.lower() == "earliest":
        return Position(Place.EARLIEST, "startingOffsets")
    if text.lower() == "latest":
        if not is_stream:
            raise option_error("startingOffsets", "a batch read cannot begin at the latest")
        return Position(Place.LATEST, "startingOffsets")
    offsets = _by_partition(options, "startingOffsets", least=EARLIEST)
    for partition, offset in offsets.items():
        if offset == LATEST and not is_stream:
            raise option_error(
                "startingOffsets", f"{partition}: a batch read cannot begin at the latest (-1)"
            )
    return Position(Place.OFFSETS, "startingOffsets", by_partition=offsets)


def _ending(options: Mapping[str, str]) -> Position:
    if "endingTimestamp" in options:
        timestamp_ms = _timestamp(options, "endingTimestamp")
        return Position(Place.TIMESTAMP, "endingTimestamp", timestamp_ms)
    if "endingOffsetsByTimestamp" in options:
        offsets = _by_partition(options, "endingOffsetsByTimestamp", least=0)
        return Position(Place.TIMESTAMPS, "endingOffsetsByTimestamp", by_partition=offsets)
    text = options.get("endingOffsets", "latest").strip()
    if text.lower() == "earliest":
        raise option_error("endingOffsets", "a read cannot end at the earliest")
    if text.lower() == "latest":
        return Position(Place.LATEST, "endingOffsets")
    offsets = _by_partition(options, "endingOffsets", least=EARLIEST)
    for partition, offset in offsets.items():
        if offset == EARLIEST:
            raise option_error("endingOffsets", f"{partition}: cannot end at the earliest (-2)")
    return Position(Place.OFFSETS, "endingOffsets", by_partition=offsets)


def _by_partition(
    options: Mapping[str, str], name: str, *, least: int
) -> dict[TopicPartition, int]:
    value = _json(options[name], name, '{"topicA":{"0":23,"1":345},"topicB":{"0":0}}')
    found = {}
    for topic, rows in value.items():
        if not isinstance(rows, dict):
            raise option_error(name, f"topic '{topic}' needs an object of partition and number")
        for index, number in rows.items():
            is_number = type(number) is int and least <= number <= _LONG_MAX
            if not str(index).isdecimal() or not is_number:
                raise option_error(name, f"topic '{topic}': '{index}': {number} is not possible")
            found[TopicPartition(topic, int(index))] = number
    if not found:
        raise option_error(name, "names no partition")
    return found


def _json(text: str, name: str, example: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise option_error(name, f"'{text}' is not JSON such as {example}")
    return value


def _timestamp(options: Mapping[str, str], name: str) -> int:
    text = options[name].strip()
    if not text.isdecimal() or int(text) > _LONG_MAX:
        raise option_error(name, f"'{text}' is not a number of milliseconds since 1970")
    return int(text)


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default)).strip()
    try:
        return int(text)
    except ValueError:
        raise option_error(name, f"'{text}' is not a number") from None


def _count(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    number = _number(options, name, 0)
    if not 0 < number <= _LONG_MAX:
        raise option_error(name, f"'{options[name]}' is not a positive number")
    return number


def boolean_option(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise option_error(name, f"'{text}' is neither 'true' nor 'false'")
    return text == "true"


def _duration_ms(options: Mapping[str, str], name: str, default: str) -> int:
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", options.get(name, default).strip().lower())
    if found is None or (found[2] or "ms") not in _UNITS_MS:
        raise option_error(name, f"'{options.get(name)}' is not a time such as 30s or 15m")
    return round(int(found[1]) * _UNITS_MS[found[2] or "ms"])
