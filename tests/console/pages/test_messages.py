"""Covers console/pages/messages.py, console/records.py."""

import json
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.console import records
from millstream.console.console import BadInput
from millstream.console.display import Display
from millstream.console.pages.messages import parse_headers
from millstream.errors import KafkaCode
from millstream.model import Codec
from millstream.records.batch import BatchView
from millstream.records.builder import build_batch
from millstream.records.records import Record
from tests.broker.handlers.exchanges import produce
from tests.support.console_node import Browser, ConsoleNode
from tests.support.raw_client import RawClient

NOW_MS = int(time.time() * 1000)


def keys(view: dict[str, object]) -> list[str]:
    rows = view["rows"]
    assert isinstance(rows, list)
    return [row["key"]["text"] for row in rows]


def test_the_newest_come_first(web: Browser, topic: str) -> None:
    view = web.api(f"/topics/{topic}?limit=3")
    assert len(view["rows"]) == 3
    times = [row["timestamp_ms"] for row in view["rows"]]
    assert times == sorted(times, reverse=True)
    assert view["rows"][0]["headers"][0]["name"] == "origin"


def test_by_offset_with_links_to_older_and_newer(web: Browser, topic: str) -> None:
    view = web.api(f"/topics/{topic}?partition=0&start=2&limit=2")
    assert keys(view) == ["k4", "k6"]
    assert keys(web.api(view["newer_url"])) == ["k8"]
    assert keys(web.api(view["older_url"]))[0] == "k0"


def test_by_time(web: Browser, topic: str) -> None:
    assert len(web.api(f"/topics/{topic}?start=@-1h")["rows"]) == 10
    assert web.api(f"/topics/{topic}?start=@2100-01-01")["rows"] == []
    assert web.get(f"/topics/{topic}?start=yesterday").status == 400


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("q=K7", ["k7"]),
        ("q=K7&case=1", []),
        ("q=test-3", ["k3"]),
        ("q=test-3&in=value", []),
        ("q=number&in=value&partition=1", ["k1", "k3", "k5", "k7", "k9"]),
        ("q=nowhere", []),
    ],
)
def test_a_search_says_what_it_scanned(
    web: Browser, topic: str, query: str, found: list[str]
) -> None:
    view = web.api(f"/topics/{topic}?{query}")
    assert keys(view) == found
    total = 5 if "partition" in query else 10
    assert (view["search"]["scanned_records"], view["search"]["total_records"]) == (total, total)
    assert view["search"]["hits"] == len(found)
    assert view["search"]["continue_url"] is None


def test_a_search_that_stops_can_be_continued(
    console_node: ConsoleNode, web: Browser, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": console_node.bootstrap, "log_level": 0})
    for _ in range(70):
        producer.produce(topic, b"same", key=b"same", partition=0)
    assert producer.flush(30) == 0
    console_node.sample()
    view = web.api(f"/topics/{topic}?q=same")
    assert len(view["rows"]) == 50
    rest = web.api(view["search"]["continue_url"])
    assert (len(rest["rows"]), rest["search"]["hits"]) == (20, 70)
    assert rest["search"]["scanned_records"] == 80


def test_a_produced_record_arrives_as_entered(
    console_node: ConsoleNode, web: Browser, topic: str
) -> None:
    answer = web.call(
        f"/topics/{topic}/produce",
        key="schlüssel",
        value="line 1\nline 2",
        headers="a: 1\nb: x: y",
        partition=1,
        repeat=2,
    )
    assert answer.status == 200
    offset = answer.json["offset"]
    consumer = Consumer({"bootstrap.servers": console_node.bootstrap, "group.id": "check"})
    consumer.assign([TopicPartition(topic, 1, offset)])
    for _ in range(2):
        message = consumer.poll(30)
        assert message is not None
        assert message.key() == "schlüssel".encode()
        assert message.value() == b"line 1\nline 2"
        assert message.headers() == [("a", b"1"), ("b", b"x: y")]
    consumer.close()


def test_a_key_goes_where_other_producers_send_it(
    console_node: ConsoleNode, web: Browser, topic: str
) -> None:
    sent: list[int] = []
    producer = Producer(
        {"bootstrap.servers": console_node.bootstrap, "partitioner": "murmur2_random"}
    )
    for key in ("foo", "bar", "zebra", "schlüssel"):
        producer.produce(topic, b"x", key=key, on_delivery=lambda _, m: sent.append(m.partition()))
        assert producer.flush(30) == 0
        assert (
            web.call(f"/topics/{topic}/produce", key=key, value="x").json["partition"] == sent[-1]
        )


def test_a_tombstone_has_no_value_and_needs_a_key(web: Browser, topic: str) -> None:
    assert web.submit(f"/topics/{topic}/produce", tombstone="1").status == 400
    answer = web.submit(f"/topics/{topic}/produce", key="gone", tombstone="1", partition="0")
    assert '<span class="null">null</span>' in web.get(answer.headers["location"]).text


def test_one_record(web: Browser, topic: str) -> None:
    view = web.api(f"/topics/{topic}/records/0/1")
    assert json.loads(view["row"]["value"]["text"]) == {"number": 2}
    assert (view["previous"], view["next"]) == (0, 2)
    assert "7b 22 6e" in web.api(f"/topics/{topic}/records/0/1?as=hex")["row"]["value"]["text"]
    assert web.get(f"/topics/{topic}/records/0/99").status == 404
    assert web.get(f"/topics/{topic}/records/7/0").status == 404


HOSTILE = [
    b"<script>alert(1)</script>",
    b'"><img src=x onerror=alert(1)>',
    b"{{ 7 * 7 }}{% raw %}",
    b"\xff\xfe\x00broken",
    b"\x1b]0;title\x07\x00\x08",
    "\u202egnp.exe".encode(),
    b"javascript:alert(1)",
]


@pytest.mark.parametrize("content", [*HOSTILE, b"x" * 900_000], ids=range(8))
def test_hostile_content_is_text(
    console_node: ConsoleNode, web: Browser, topic: str, content: bytes
) -> None:
    producer = Producer({"bootstrap.servers": console_node.bootstrap, "log_level": 0})
    name = content[:100].decode(errors="replace").replace("\0", "")
    producer.produce(
        topic, content, key=content[:1000], headers=[(name, content[:5000])], partition=0
    )
    assert producer.flush(30) == 0
    for path in (f"/topics/{topic}", f"/topics/{topic}/records/0/5", f"/topics/{topic}?q=x"):
        text = web.get(path).text
        assert len(text) < 600_000
        for active in ("<script>alert", "<img src=x", "\x1b", "\x00", "\u202e", ">49<"):
            assert active not in text


def test_records_that_cannot_be_read_do_not_hide_the_others(
    console_node: ConsoleNode, web: Browser, topic: str
) -> None:
    """Two kilobytes of zstd may be a million headers."""
    bomb = Record(0, NOW_MS, None, b"bomb", [("", b"")] * 100_000)
    several = Record(0, NOW_MS, None, b"several", [(f"h{number}", b"x") for number in range(200)])
    with RawClient(console_node.bootstrap) as client:
        for record in (bomb, several):
            data = build_batch([record], base_offset=0, codec=Codec.ZSTD)
            assert produce(client, topic, data).error_code == KafkaCode.NONE
    text = web.get(f"/topics/{topic}").text
    assert "has 100000 headers, up to 10000 are read" in text
    assert "several" in text
    assert "and 150 more" in text
    rows = web.api(f"/topics/{topic}")["rows"]
    assert isinstance(rows, list)
    offset = max(row["offset"] for row in rows)
    assert "has 100000 headers" in web.get(f"/topics/{topic}/records/0/{offset - 1}").text
    assert "h199" in web.get(f"/topics/{topic}/records/0/{offset}").text
    assert web.get(f"/topics/{topic}?q=several").text.count("and 150 more") == 1


def test_no_more_rows_are_made_than_a_page_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    row_of = records.row_of

    def noted(record: Record, *arguments: Any, **options: Any) -> records.RecordRow:
        made.append(record.offset)
        return row_of(record, *arguments, **options)

    monkeypatch.setattr(records, "row_of", noted)
    content = [Record(number, NOW_MS, None, b"v") for number in range(1000)]
    batch = BatchView(memoryview(build_batch(content, base_offset=0)))
    decode = records._Decode([batch], 0, Display("text"), 990, 3)
    assert [row.offset for row in decode()] == made == [990, 991, 992]


def test_what_a_page_adds_up_is_bounded_by_its_headers_too() -> None:
    content = [Record(n, NOW_MS, None, b"", [("h", b"")] * 1000) for n in range(10)]
    batch = BatchView(memoryview(build_batch(content, base_offset=0)))
    found, left_bytes = records._RecordsFrom([batch], 0, 500_000)()
    assert 3 <= len(found) <= 5
    assert left_bytes <= 0


def test_headers_are_lines() -> None:
    assert parse_headers("a: b\n\nc:") == [("a", b"b"), ("c", b"")]
    with pytest.raises(BadInput):
        parse_headers("nothing")
