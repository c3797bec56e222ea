"""A topic read as events: the same as its records, parsed on the way."""

import time
from typing import TYPE_CHECKING, Any

import pytest

from millstream.ingest.traffic import Site
from tests.pipeline.agreement import SPEC, send
from tests.pipeline.conftest import MakeSpec
from tests.support.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]

LINES = 500


def taken(stream: "DataFrame", name: str, folder: str) -> "list[Row]":
    """All rows that a stream has now."""
    writer = stream.writeStream.format("memory").queryName(name)
    query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
    assert query.awaitTermination(100)
    return stream.sparkSession.table(name).orderBy("partition", "offset").collect()


def test_events_from_the_source_are_those_of_the_records(
    spark: "SparkSession", kafka: Broker, make_topic: Any, make_spec: MakeSpec, tmp_path: Any
) -> None:
    from millstream.pipeline.parsing import EVENT_COLUMNS, parse_events
    from millstream.pipeline.queries import Query, read_input

    topic = make_topic(partitions=2)
    spec = make_spec(SPEC.format(name="n", bootstrap=kafka.bootstrap, topic=topic, settings=""))
    start_ms = time.time_ns() // 1_000_000 - 3_600_000
    site = Site(seed=2, start_ms=start_ms, lines_per_second=20)
    send(
        kafka.bootstrap, topic, [line for line, _ in zip(site.lines(), range(LINES), strict=False)]
    )

    def nothing(*_: object) -> Any:
        raise AssertionError("it is not started")

    found = {
        "events": read_input(spark, spec, Query("a", 0, False, EVENT_COLUMNS, nothing)),
        "parsed": parse_events(read_input(spark, spec, Query("b", 0, False, None, nothing)), spec),
    }
    rows = {name: taken(stream, name, str(tmp_path / name)) for name, stream in found.items()}
    # From the earliest on, as the options say.
    assert len(rows["events"]) == LINES
    assert rows["events"] == rows["parsed"]
    assert {row.problem for row in rows["events"]} == {None}
