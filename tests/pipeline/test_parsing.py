"""Lines on their way through Spark; what is read from them is tested with `millstream.lines`."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from millstream.lines.parser import EVENT_SCHEMA, LineParser
from tests.lines.samples import BAD, GOOD, ODD, records
from tests.pipeline.conftest import MakeSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

NOW = datetime(2026, 9, 21, 14, 0, 0, tzinfo=UTC)
SCHEMA = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"


@pytest.mark.parametrize("settings", ["", "timezone = 'Europe/Berlin'\n[parse]\nmask = ['user']"])
def test_lines_through_spark_become_what_the_parser_makes_of_them(
    spark: "SparkSession", make_spec: MakeSpec, settings: str
) -> None:
    from millstream.pipeline.parsing import line_rules, parse_events
    from millstream.pipeline.spark_session import prepare

    spec = make_spec(settings)
    prepare(spark, spec)
    lines = [*(line.encode() for line in (*GOOD, *ODD)), *BAD, None]
    batch = records(lines)
    expected = LineParser(line_rules(spec), EVENT_SCHEMA.names).parse(batch)
    frame = spark.createDataFrame(pa.Table.from_batches([batch]))
    found = parse_events(frame, spec).orderBy("offset").toArrow()
    assert found.column_names == EVENT_SCHEMA.names
    for field in EVENT_SCHEMA:
        column = found.column(field.name).cast(field.type)
        assert column.to_pylist() == expected.column(field.name).to_pylist(), field.name


def test_a_function_of_the_user_is_found_by_the_workers(
    spark: "SparkSession", make_spec: MakeSpec
) -> None:
    from millstream.pipeline.parsing import parse_events

    spec = make_spec(
        """
        [[parse.sources]]
        match = "*/pipes"
        function = "tests.pipeline.custom_parsers:parse_pipes"
        """
    )
    lines = [b"2026-09-21T13:59:58Z|cart|503", b"nothing"]
    rows = [(b"a/pipes", bytearray(line), "logs", 0, n, NOW) for n, line in enumerate(lines)]
    events = parse_events(
        spark.createDataFrame(rows, SCHEMA), spec, ("service", "status", "detail")
    )
    assert {tuple(row) for row in events.collect()} == {
        ("cart", 503, None),
        (None, None, "no time as custom"),
    }
