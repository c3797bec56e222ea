"""Windows, dead letters and tables against a plain reading of the same lines.

Covers pipeline.
"""

import time
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from millstream.ingest.bad_lines import with_bad_lines
from millstream.ingest.traffic import Site
from millstream.pipeline.outputs import table_path
from millstream.pipeline.spec import Spec
from tests.pipeline.agreement import SPEC, closing_line, disagreements, plain_results, send
from tests.pipeline.conftest import MakeSpec
from tests.support.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def run_once(spark: "SparkSession", spec: Spec) -> None:
    from millstream.pipeline.run import start, watch

    running = start(spark, spec, once=True)
    try:
        status = watch(running, lambda status: None, print, is_over=lambda status: False)
    finally:
        running.stop()
    assert [query.dropped for query in status.queries] == [0] * len(status.queries)


def test_real_time_warehouse_and_a_plain_reading_agree(
    spark: "SparkSession", kafka: Broker, make_topic: Any, make_spec: MakeSpec
) -> None:
    from millstream.spark import read_table

    topic = make_topic(partitions=2)
    spec = make_spec(
        SPEC.format(
            name=f"agree-{time.time_ns()}", bootstrap=kafka.bootstrap, topic=topic, settings=""
        )
    )
    start_ms = time.time_ns() // 1_000_000 - 3 * 3600 * 1000
    site = Site(seed=11, start_ms=start_ms, lines_per_second=20)
    # Among the bad ones are lines dated seventy years ahead.
    lines = list(islice(with_bad_lines(site.lines(), seed=5, share=0.05), 6000))
    half = len(lines) // 2
    send(kafka.bootstrap, topic, lines[:half])
    run_once(spark, spec)
    lines.append(closing_line(lines))
    send(kafka.bootstrap, topic, lines[half:])
    run_once(spark, spec)
    assert disagreements(spec, lines) == []
    plain = plain_results(spec, lines)
    assert set(plain.dead) == {"unparsable", "ahead", "late"}
    events = read_table(spark, table_path(spec, "events"))
    assert events.where("problem IS NULL").count() == plain.good
