"""Records of a topic: browse, search, follow, look at one, produce."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlencode

from millstream.client.start_position import (
    FromBeginning,
    FromEnd,
    FromOffset,
    FromTime,
    parse_start,
)
from millstream.console.asking import AskFailed
from millstream.console.console import BadInput, Console, NotFound
from millstream.console.display import Display
from millstream.console.facts import TopicFacts
from millstream.console.page import Action, Done, Page, Parameter, Values
from millstream.console.pages.topics import TopicHead, topic_head
from millstream.console.reading import offsets_at
from millstream.console.records import (
    PAGE_RECORDS_MAX,
    REPEAT_MAX,
    NewRecord,
    RecordRow,
    Search,
    end_offsets,
    fetch,
    produce,
    read_forward,
    read_newest,
    row_at,
    search,
)
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.records.partitioning import partition_of_key

_SHOWN_AS: Final = ("auto", "text", "json", "hex")
_PLACES: Final = ("anywhere", "key", "value", "headers")
_RECORDS: Final = 50
_RECORD_BYTES: Final = 1 << 20
_RANDOM_PARTITION: Final = ""


@dataclass(frozen=True, slots=True)
class SearchState:
    """How far a search came: "scanned 1.2 M of 4.0 M records, 3 hits"."""

    needle: str
    place: str
    scanned_records: int
    scanned_bytes: int
    total_records: int
    hits: int
    # None when everything was read.
    continue_url: str | None


@dataclass(frozen=True, slots=True)
class Messages:
    topic: TopicHead
    rows: list[RecordRow]
    partition: int | None
    # As entered: newest, beginning, N, -N or @TIME.
    start: str
    as_: str
    limit: int
    search: SearchState | None
    older_url: str | None
    newer_url: str | None


async def messages(console: Console, values: Values) -> Messages:
    name = values.text("topic")
    topic = await console.topic(name)
    head = await topic_head(console, name)
    partition = values.number("partition", -1, low=-1)
    if partition >= 0:
        await console.partition(name, partition)
    chosen = [partition] if partition >= 0 else [one.index for one in topic.partitions]
    display = console.display(values.choice("as", _SHOWN_AS))
    limit = values.number("limit", _RECORDS, low=1, high=PAGE_RECORDS_MAX)
    start = values.text("start") or "newest"
    state: SearchState | None = None
    if values.raw("q"):
        rows, state = await _search(console, topic, chosen, values, display)
    elif start == "newest":
        rows = await read_newest(console.client, topic, chosen, limit=limit, display=display)
    else:
        offsets = await _start_offsets(console, topic, chosen, start)
        rows = await _forward(console, topic, offsets, limit=limit, display=display)
    older, newer = _neighbours(topic, partition, rows, limit, display.as_)
    return Messages(
        head,
        rows,
        None if partition < 0 else partition,
        start,
        display.as_,
        limit,
        state,
        older,
        newer,
    )


async def _start_offsets(
    console: Console, topic: TopicFacts, chosen: list[int], text: str
) -> dict[int, int]:
    try:
        start = parse_start(text, now=datetime.fromtimestamp(console.clock.now_ms() / 1000, UTC))
    except ValueError as wrong:
        raise BadInput(f"Start: {wrong}.") from None
    found: dict[int, int] = {}
    if isinstance(start, FromTime):
        places = [TopicPartition(topic.name, index) for index in chosen]
        facts = await console.facts()
        at = await offsets_at(console.client, facts, places, start.timestamp_ms)
        return {where.partition: offset for where, offset in at.items() if offset >= 0}
    for index in chosen:
        one = topic.partitions[index]
        match start:
            case FromBeginning():
                found[index] = one.start_offset
            case FromEnd(back=back):
                found[index] = max(one.end_offset - back, one.start_offset)
            case FromOffset(offset=offset):
                found[index] = max(offset, one.start_offset)
    return {index: offset for index, offset in found.items() if offset >= 0}


async def _forward(
    console: Console, topic: TopicFacts, offsets: Mapping[int, int], *, limit: int, display: Display
) -> list[RecordRow]:
    rows: list[RecordRow] = []
    for index, offset in list(offsets.items())[:64]:
        if topic.partitions[index].leader < 0 or offset > topic.partitions[index].end_offset:
            continue
        rows += await read_forward(
            console.client, topic, index, offset, limit=limit, display=display
        )
    rows.sort(key=lambda row: (row.timestamp_ms, row.partition, row.offset))
    return rows[:limit]


def _neighbours(
    topic: TopicFacts, partition: int, rows: list[RecordRow], limit: int, as_: str
) -> tuple[str | None, str | None]:
    """Links to what is before and behind the rows, where one partition is shown."""
    if partition < 0 or not rows:
        return None, None
    one = topic.partitions[partition]
    first, last = min(row.offset for row in rows), max(row.offset for row in rows)

    def url(offset: int) -> str:
        query = urlencode({"partition": partition, "start": offset, "limit": limit, "as": as_})
        return f"/topics/{quote(topic.name)}?{query}"

    older = url(max(first - limit, one.start_offset)) if first > one.start_offset else None
    newer = url(last + 1) if last + 1 < one.end_offset else None
    return older, newer


async def _search(
    console: Console, topic: TopicFacts, chosen: list[int], values: Values, display: Display
) -> tuple[list[RecordRow], SearchState]:
    wanted = Search(values.raw("q"), values.choice("in", _PLACES), values.has("case"))
    if values.has("at"):
        offsets = _parse_offsets(topic, values.text("at"))
    else:
        start = values.text("start") or "beginning"
        start = "beginning" if start == "newest" else start
        offsets = await _start_offsets(console, topic, chosen, start)
    found = await search(
        console.client, topic, offsets, wanted, display=display, now=console.clock.monotonic
    )
    ends = await end_offsets(console.client, topic, chosen)
    total = sum(max(ends[index] - topic.partitions[index].start_offset, 0) for index in chosen)
    scanned = values.number("scanned", 0) + found.scanned_records
    hits = values.number("hits", 0) + len(found.rows)
    state = SearchState(
        wanted.needle,
        wanted.where,
        scanned,
        found.scanned_bytes,
        total,
        hits,
        _continue_url(topic, values, found.next_offsets, scanned, hits),
    )
    return found.rows, state


def _continue_url(
    topic: TopicFacts, values: Values, offsets: Mapping[int, int], scanned: int, hits: int
) -> str | None:
    if not offsets:
        return None
    kept = {
        name: values.raw(name)
        for name in ("q", "in", "case", "partition", "as", "limit", "start")
        if values.raw(name)
    }
    at = ",".join(f"{index}:{offset}" for index, offset in offsets.items())
    query = urlencode({**kept, "at": at, "scanned": scanned, "hits": hits})
    return f"/topics/{quote(topic.name)}?{query}"


def _parse_offsets(topic: TopicFacts, text: str) -> dict[int, int]:
    found = {}
    for part in text.split(","):
        index, _, offset = part.partition(":")
        if not index.isdecimal() or not offset.isdecimal() or int(index) >= len(topic.partitions):
            raise BadInput("The link to continue a search is damaged.")
        found[int(index)] = int(offset)
    return found


# -- one record -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OneRecord:
    topic: TopicHead
    row: RecordRow
    as_: str
    previous: int | None
    next: int | None


async def record(console: Console, values: Values) -> OneRecord:
    name = values.text("topic")
    index, offset = values.number("partition", 0), values.number("offset", 0)
    one = await console.partition(name, index)
    display = console.display(values.choice("as", _SHOWN_AS))
    try:
        found = await fetch(
            console.client, one.leader, name, index, offset, max_bytes=_RECORD_BYTES
        )
    except AskFailed as failed:
        if failed.code != KafkaCode.OFFSET_OUT_OF_RANGE:
            raise
        raise NotFound(str(failed)) from failed
    for batch in found.batches[:1]:
        row = await asyncio.to_thread(row_at, batch, index, offset, display=display)
        if row is not None:
            previous = offset - 1 if offset > one.start_offset else None
            following = row.offset + 1 if row.offset + 1 < one.end_offset else None
            return OneRecord(await topic_head(console, name), row, display.as_, previous, following)
    raise NotFound(f"{name}-{index} has no record at or after offset {offset}.")


# -- producing ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProduceForm:
    topic: TopicHead
    repeat_max: int


async def produce_form(console: Console, values: Values) -> ProduceForm:
    return ProduceForm(await topic_head(console, values.text("topic")), REPEAT_MAX)


async def send(console: Console, values: Values) -> Done:
    topic = await console.topic(values.text("topic"))
    key = values.raw("key").encode() if values.raw("key") else None
    value = None if values.has("tombstone") else _lines(values.raw("value")).encode()
    if value is None and key is None:
        raise BadInput("A tombstone needs a key: it removes the record with that key.")
    if values.text("partition") == _RANDOM_PARTITION:
        count = len(topic.partitions)
        chosen = console.clock.now_ms() % count if key is None else partition_of_key(key, count)
    else:
        chosen = values.number("partition", 0, high=len(topic.partitions) - 1)
    repeat = values.number("repeat", 1, low=1, high=REPEAT_MAX)
    new = NewRecord(key, value, parse_headers(values.raw("headers")))
    offset = await produce(
        console.client, topic, chosen, new, repeat=repeat, now_ms=console.clock.now_ms()
    )
    what = "The record has" if repeat == 1 else f"The first of {repeat:,} records has"
    query = urlencode({"partition": chosen, "start": offset})
    return Done(
        f"{what} offset {offset} in partition {chosen}.",
        f"/topics/{quote(topic.name)}?{query}",
        {"partition": chosen, "offset": offset},
    )


def _lines(text: str) -> str:
    """Forms send lines with a carriage return, which nobody typed."""
    return text.replace("\r\n", "\n")


def parse_headers(text: str) -> list[tuple[str, bytes | None]]:
    """Lines of `name: value`. Raises BadInput."""
    found: list[tuple[str, bytes | None]] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise BadInput(f"A header is a line of name: value, not {line[:60]!r}.")
        found.append((name.strip(), value.strip().encode()))
    return found


_BROWSING: Final = (
    Parameter("start", "newest, beginning, an offset, -N or @TIME such as @-1h"),
    Parameter("partition", "all by default"),
    Parameter("limit", "50 by default, at most 500"),
    Parameter("as", "auto, text, json or hex"),
    Parameter("q", "search for this text"),
    Parameter("in", "search anywhere, or in key, value or headers"),
    Parameter("case", "1: letters must be the same"),
    Parameter("at", "PARTITION:OFFSET,... where a search goes on"),
)
PAGES = (
    Page("/topics/{topic}", "messages.html", messages, "Browse or search records", _BROWSING),
    Page(
        "/topics/{topic}/records/{partition}/{offset}",
        "record.html",
        record,
        "One record, up to 64 KB of it",
        (Parameter("as", "auto, text, json or hex"),),
    ),
    Page("/topics/{topic}/produce", "produce.html", produce_form, "The form to produce a record"),
)
ACTIONS = (
    Action(
        "/topics/{topic}/produce",
        send,
        "Produce a record",
        (
            Parameter("key", "none by default"),
            Parameter("value", ""),
            Parameter("headers", "lines of name: value"),
            Parameter("partition", "by the key's hash by default"),
            Parameter("tombstone", "1: without a value"),
            Parameter("repeat", f"how often, at most {REPEAT_MAX}"),
        ),
    ),
)
