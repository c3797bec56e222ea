"""Windows, dead letters and tables against a plain reading of the same lines."""

import time
from datetime import date
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from millstream.ingest.bad_lines import with_bad_lines
from millstream.ingest.traffic import Site
from millstream.pipeline import outputs
from millstream.pipeline.outputs import table_path
from millstream.pipeline.spec import Spec
from millstream.testing import Broker
from tests.pipeline.agreement import (
    SPEC,
    check_agreement,
    check_windows,
    last_line,
    newest,
    send,
)
from tests.pipeline.conftest import MakeSpec
from tests.pipeline.plain_reading import PlainResults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def run_once(spark: "SparkSession", spec: Spec) -> None:
    from millstream.pipeline.run import start, watch

    running = start(spark, spec, once=True)
    try:
        status = watch(running, lambda status: None, is_over=lambda status: False)
    finally:
        running.stop()
    assert [query.dropped for query in status.queries] == [0] * len(status.queries)


def check_rebuilt(spark: "SparkSession", spec: Spec, plain: PlainResults) -> None:
    """From the table come the same windows under the same keys, and the one still open."""
    from millstream.pipeline.rebuild import rebuild

    before = newest(spec, outputs.FINAL)
    count = rebuild(spark, spec, "windows", date(2020, 1, 1))
    after = newest(spec, outputs.FINAL)
    assert count == len(after)
    assert set(before) < set(after)
    check_windows([after[key] for key in before], plain, is_final=True)


def test_real_time_warehouse_and_a_plain_reading_agree(
    spark: "SparkSession", kafka: Broker, make_topic: Any, make_spec: MakeSpec
) -> None:
    from millstream.spark import read_table

    topic = make_topic(partitions=2)
    spec = make_spec(
        SPEC.format(name=f"agree-{time.time_ns()}", bootstrap=kafka.bootstrap, topic=topic)
    )
    start_ms = time.time_ns() // 1_000_000 - 3 * 3600 * 1000
    site = Site(seed=11, start_ms=start_ms, lines_per_second=20)
    # Among the bad ones are lines dated seventy years ahead.
    lines = list(islice(with_bad_lines(site.lines(), seed=5, share=0.05), 6000))
    half = len(lines) // 2
    send(kafka.bootstrap, topic, lines[:half])
    run_once(spark, spec)
    send(kafka.bootstrap, topic, [*lines[half:], last_line(lines)])
    run_once(spark, spec)
    plain = check_agreement(spec, lines)
    assert set(plain.dead) == {"unparsable", "ahead", "late"}
    check_rebuilt(spark, spec, plain)
    events = read_table(spark, table_path(spec, "events"))
    assert events.where("problem IS NULL").count() == plain.good + 1
