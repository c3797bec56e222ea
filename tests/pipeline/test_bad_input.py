"""Whatever is in a topic: it is counted, kept, and changes nothing that was good.

Covers pipeline.
"""

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from millstream.ingest import log_lines
from millstream.pipeline import outputs
from millstream.pipeline.spec import Spec
from tests.pipeline.agreement import newest, read_topic, window_ms
from tests.pipeline.conftest import MakeSpec
from tests.support.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

MINUTE_MS = 60_000
YEAR_MS = 365 * 24 * 60 * MINUTE_MS
RECORD_BYTES_MAX = 20_000_000


def bad_values(now_ms: int) -> dict[bytes, str]:
    """Each with the reason that it must be given."""
    in_2099 = 4_070_908_800_000
    return {
        b"x" * 10_000_000: "unparsable",
        bytes(range(256)) * 4: "unparsable",
        "2026-09-21T13:59:58Z caf\u00e9".encode("latin-1"): "unparsable",
        "2026-09-21T13:59:58Z as UTF-16".encode("utf-16"): "unparsable",
        b"": "unparsable",
        b"{" * 30_000: "unparsable",
        log_lines.json_line(in_2099, service="dreamer"): "ahead",
        log_lines.json_line(0, service="first"): "late",
        log_lines.json_line(now_ms - 40 * YEAR_MS, service="sleeper"): "late",
    }


def good_lines(first_ms: int, count: int) -> list[tuple[int, bytes]]:
    """A log that changes its format in the middle."""
    formats = [
        lambda at_ms: log_lines.json_line(at_ms, service="cart", status=200),
        lambda at_ms: log_lines.free_text(at_ms, level="INFO", text="it goes on"),
        lambda at_ms: log_lines.rfc5424(at_ms, severity=6, host="a", program="b", text="c"),
    ]
    times = [first_ms + number * 1000 for number in range(count)]
    return [(at_ms, formats[i * 3 // count](at_ms)) for i, at_ms in enumerate(times)]


def send(spec: Spec, records: list[tuple[int, bytes | None]]) -> None:
    options = {"bootstrap.servers": spec.bootstrap, "message.max.bytes": RECORD_BYTES_MAX}
    producer = Producer(options)
    for at_ms, value in records:
        producer.produce(spec.topics[0], value, key="web-1/log", timestamp=at_ms)
    assert producer.flush(60) == 0


def run_once(spark: "SparkSession", spec: Spec) -> list[int]:
    """Returns how many lines were dropped, by query."""
    from millstream.pipeline.run import start, watch

    running = start(spark, spec, once=True)
    try:
        status = watch(running, lambda status: None, print, is_over=lambda status: False)
    finally:
        running.stop()
    return [query.dropped for query in status.queries]


def test_bad_input_is_counted_and_kept_and_changes_no_other_count(
    spark: "SparkSession", kafka: Broker, make_topic: Any, make_spec: MakeSpec
) -> None:
    topic = make_topic(configs={"max.message.bytes": str(RECORD_BYTES_MAX)})
    spec = make_spec(
        f"""
        name = "bad-{time.time_ns()}"
        bootstrap = "{kafka.bootstrap}"
        input.topics = ["{topic}"]
        """
    )
    first_ms = time.time_ns() // 1_000_000 // MINUTE_MS * MINUTE_MS - 3 * 3600 * 1000
    good = good_lines(first_ms, 240)
    bad = bad_values(first_ms)
    closing_ms = first_ms + 60 * MINUTE_MS
    closing = log_lines.json_line(closing_ms, service="last")
    # The event of 2099 and the others come first: what follows must not be late because of them.
    send(spec, [*good[:60], *((first_ms, value) for value in bad), (first_ms, None)])
    assert run_once(spark, spec) == [0]
    send(spec, [*good[60:], (closing_ms, closing)])
    assert run_once(spark, spec) == [0]

    dead = read_topic(spec, outputs.DEAD)
    reasons = {each.value() or b"": dict(each.headers())["reason"].decode() for each in dead}
    assert reasons == bad
    assert len(dead) == len(bad) + 1
    wanted = Counter(at_ms // MINUTE_MS * MINUTE_MS for at_ms, _ in good)
    found = {
        window_ms(row): row["count"]
        for row in newest(spec, outputs.FINAL).values()
        if row["output"] == "input"
    }
    assert found == wanted
