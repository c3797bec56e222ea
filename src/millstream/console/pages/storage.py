"""The storage of a partition on the node of this process: segments, cache, indexes, batches."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from millstream.client.start_position import FromTime, parse_start
from millstream.console.allowed import require_read
from millstream.console.console import BadInput, Console, NotFound
from millstream.console.page import Page, Parameter, Values
from millstream.console.pages.topics import TopicHead, topic_head
from millstream.console.partition_storage import PartitionStorage, describe_partition
from millstream.console.sampling import IsrEvent
from millstream.errors import KafkaError
from millstream.replication.partition import Partition
from millstream.storage.inspection.batch_layout import Field, batch_fields
from millstream.storage.inspection.explain import Explanation, explain_offset, explain_time

_HEX_BYTES_MAX: Final = 2_048
_HEX_WIDTH: Final = 16
_PARTITIONS_SHOWN: Final = 1_000


@dataclass(frozen=True, slots=True)
class Storage:
    topic: TopicHead
    partition: int
    # None where the console runs alone, or another node has the replicas.
    storage: PartitionStorage | None
    explanation: Explanation | None
    # The offset or time that is explained, as entered.
    at: str
    events: list[IsrEvent]
    now_ms: int


async def storage(console: Console, values: Values) -> Storage:
    name, index = values.text("topic"), values.number("partition", 0)
    await require_read(console, name, await console.partition(name, index))
    head = await topic_head(console, name)
    partition = None if console.node is None else console.node.partition(name, index)
    events = [each for each in console.sampler.isr_events if each.is_of(name, index)]
    now_ms, at = console.clock.now_ms(), values.text("at")
    if partition is None or console.node is None:
        return Storage(head, index, None, None, at, events, now_ms)
    base = values.number("segment", -1, low=-1)
    found = describe_partition(
        partition,
        console.node.broker.cleaner,
        console.node.broker.node.disk.durability,
        now_ms=now_ms,
        monotonic_ms=console.node.broker.node.now_ms(),
        segment_base=None if base < 0 else base,
        bytes_per_second=_growth(console, name, partition),
    )
    explanation = _explain(partition, at, now_ms) if at else None
    return Storage(head, index, found, explanation, at, events, now_ms)


def _growth(console: Console, topic: str, partition: Partition) -> float:
    """Bytes a second, from the topic's rate and the mean size of this partition's records."""
    rate = console.sampler.history.latest(f"topic.{topic}.records_in")
    records = partition.log.next_offset - partition.log.log_start_offset
    count = len(console.node.broker.node.partitions.of_topic(topic)) if console.node else 1
    if not rate or not records:
        return 0.0
    return rate / max(count, 1) * partition.log.segments.size_bytes / records


def _explain(partition: Partition, at: str, now_ms: int) -> Explanation:
    log = partition.log
    steps: list[str] = []
    if at.isdecimal():
        offset = int(at)
    else:
        try:
            start = parse_start(at, now=datetime.fromtimestamp(now_ms / 1000, UTC))
        except ValueError as wrong:
            raise BadInput(f"Explain: {wrong}.") from None
        if not isinstance(start, FromTime):
            raise BadInput("Explain takes an offset, or a time such as @-1h.")
        steps = explain_time(log.segments.all, start.timestamp_ms)
        found = _offset_at(partition, start.timestamp_ms)
        if found is None:
            return Explanation(-1, steps)
        steps.append(f"The first record that is not older has offset {found}.")
        offset = found
    if not log.log_start_offset <= offset < log.next_offset:
        text = f"The log has offsets {log.log_start_offset} to {log.next_offset - 1}."
        return Explanation(offset, [*steps, text])
    explanation = explain_offset(log.segments.all, log.segments.number_of(offset), offset)
    explanation.steps = steps + explanation.steps
    return explanation


def _offset_at(partition: Partition, timestamp_ms: int) -> int | None:
    found = partition.offset_at_once(timestamp_ms, upto_offset=partition.high_watermark)
    return None if found is None else found.offset


# -- the batch inspector --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HexPiece:
    """Bytes of one field, or of none (-1), in one line."""

    field: int
    text: str


@dataclass(frozen=True, slots=True)
class HexLine:
    position: str
    pieces: list[HexPiece]


@dataclass(frozen=True, slots=True)
class Batch:
    topic: TopicHead
    partition: int
    offset: int
    # None where the console runs alone, or another node has the replicas.
    base_offset: int | None
    position: int = -1
    size_bytes: int = 0
    path: str = ""
    fields: list[Field] | None = None
    lines: list[HexLine] | None = None
    is_cut: bool = False
    problem: str | None = None
    next_offset: int = -1


async def batch(console: Console, values: Values) -> Batch:
    name, index = values.text("topic"), values.number("partition", 0)
    offset = values.number("offset", 0)
    await require_read(console, name, await console.partition(name, index))
    head = await topic_head(console, name)
    partition = None if console.node is None else console.node.partition(name, index)
    if partition is None:
        return Batch(head, index, offset, None)
    log = partition.log
    try:
        log.read(offset, max_bytes=1, upto_offset=log.next_offset, at_least_one=False)
    except KafkaError as error:
        raise NotFound(str(error)) from error
    segment = log.segments[log.segments.number_of(offset)]
    found = segment.find(offset)
    if found is None:
        raise NotFound(f"There is no batch at or after offset {offset} in its segment.")
    view = segment.read_batch(*found)
    problem = None
    try:
        fields = batch_fields(view)
    except ValueError as error:
        fields, problem = [], str(error)
    shown = bytes(view.bytes[:_HEX_BYTES_MAX])
    return Batch(
        head,
        index,
        offset,
        view.base_offset,
        found[0],
        view.size_bytes,
        segment.file.path,
        fields,
        hex_lines(shown, fields),
        len(shown) < view.size_bytes,
        problem,
        view.next_offset,
    )


def hex_lines(data: bytes, fields: list[Field]) -> list[HexLine]:
    """Sixteen bytes a line, in pieces that each belong to one field."""
    owners = [-1] * len(data)
    for number, field in enumerate(fields):
        for at in range(field.start, min(field.end, len(data))):
            owners[at] = number
    lines = []
    for start in range(0, len(data), _HEX_WIDTH):
        pieces: list[HexPiece] = []
        end = min(start + _HEX_WIDTH, len(data))
        at = start
        while at < end:
            after = at
            while after < end and owners[after] == owners[at]:
                after += 1
            pieces.append(HexPiece(owners[at], data[at:after].hex(" ")))
            at = after
        lines.append(HexLine(f"{start:06x}", pieces))
    return lines


PAGES: tuple[Page, ...] = (
    Page(
        "/topics/{topic}/storage",
        "storage.html",
        storage,
        "Segments, page cache, indexes, durability, replicas and retention of a partition",
        (
            Parameter("partition", "0 by default"),
            Parameter("segment", "the base offset of the segment to look into"),
            Parameter("at", "explain how this offset, or @TIME, is found"),
        ),
    ),
    Page(
        "/topics/{topic}/batch",
        "batch.html",
        batch,
        "A record batch, byte by byte",
        (Parameter("partition", "0 by default"), Parameter("offset", "one in the batch")),
    ),
)
