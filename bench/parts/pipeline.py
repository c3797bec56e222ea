"""Lines per second through the pipeline on Spark, beside the same results fed from Kafka.

Every result, table and setting is the same on all sides, in one session of two cores. Our lines
are read by our source, whose tasks run the one pass over them. Kafka's come through Spark's own
connector, and go from there to Python workers: *same pass* runs the same pass there and merges it
the same way; *Spark's operators* parses lines there with the same parser, and leaves windows and
visits to Spark's own operators, in three queries beside the one for the tables. *All results*
sends lines to queries that are at work, until all of them are in live and closed windows, visits,
dead letters and tables; one round does not count, for Java compiles most of the code in it, and
the sides take turns in being first. A stage is everything up to it, over lines that lie in a
topic, run twice after that. Delays are those of a trigger of one second. *After millions of lines*
sends them at an even 25,000 a second, and compares the last tenth of them with the third.
*Flink SQL* counts lines, errors and bytes per minute and host, from the same lines in Kafka, and
nothing else; it reads only the status and the size of a line (`bench/flink.py`).
"""

import itertools
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from bench import clients, flink, pipeline
from bench.bench import Bench
from bench.pipeline import READ, RESULTS, STAGES, TABLES, Feed, Whole
from bench.pipeline_growth import SETTLED_STEP, Step, run_long
from bench.rows import Row, at_least, at_most
from millstream.cli.output import counted
from millstream.ingest.traffic import TrafficLine
from millstream.pipeline.run import create_topics

PART = "pipeline"
_OURS: Final = "Millstream"
_SAME_PASS: Final = "Kafka, connector, same pass"
_OPERATORS: Final = "Kafka, connector, Spark's operators"
_PARTITIONS: Final = 2
_TRIGGER: Final = "1 second"
_LINES_PER_SECOND: Final = 300
_TARGETS: Final = {_SAME_PASS: at_least(2), _OPERATORS: at_least(3)}
_AIM: Final = "what is aimed at"
_RATE_AIM: Final = 180_000.0
# Seconds, by percentile.
_DELAY_AIMS: Final = {50: 1.0, 99: 2.5}
_NUMBERS: Final = itertools.count()
# Queries have taken these, and are at work, when the others are sent.
_FIRST_LINES: Final = 2000
# What a longer run may have more than a shorter one, for the chance of a moment.
_GROWTH_MAX: Final = 1.2


@dataclass(slots=True)
class Sides:
    """All feeds, with what was measured on each, round by round."""

    bench: Bench
    folder: Path
    feeds: list[Feed]
    lines: list[TrafficLine]
    stage_rates: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    sent_rates: dict[str, list[float]] = field(default_factory=dict)
    wholes: dict[str, list[Whole]] = field(default_factory=dict)

    def filled_topic(self, feed: Feed, partitions: int) -> str:
        """A topic with all lines; sending them is measured on the way."""
        topic = f"lines-{next(_NUMBERS)}"
        clients.create_topic(feed.bootstrap, topic, partitions=partitions, config={})
        seconds = pipeline.send_lines(feed, topic, self.lines)
        self.sent_rates.setdefault(feed.name, []).append(len(self.lines) / seconds)
        return topic

    def each_round(
        self,
        what: str,
        feeds: Sequence[Feed],
        numbers: Sequence[int],
        measure: Callable[[Feed, bool], None],
    ) -> None:
        """All feeds, in turns first; round 0, if there is one, does not count.

        Java goes on compiling for several rounds, so the side measured later has an advantage.
        """
        for number in numbers:
            first = number % len(feeds)
            for feed in [*feeds[first:], *feeds[:first]]:
                os.sync()
                self.bench.say(f"pipeline: {what}, {feed.name}, round {number} of {numbers[-1]}")
                measure(feed, number > 0)


def run(bench: Bench) -> list[Row]:
    folder = bench.path("pipeline")
    folder.mkdir()
    lines = pipeline.make_lines(200_000 if bench.is_quick else 1_500_000)
    sides = Sides(bench, folder, _feeds(bench), lines)
    bench.say("pipeline: starting a session")
    spark = pipeline.start_session(folder, "local[2]")
    try:
        _measure_wholes(sides, spark)
        flink_row = _flink_row(sides)
        _measure_stages(sides, spark)
        delays = {feed.name: _delays(sides, spark, feed) for feed in sides.feeds}
        growth = [_partitions_row(sides, spark, count) for count in (1, 4)]
        growth += _long_rows(sides, spark)
        spark.stop()
        spark = pipeline.start_session(folder, "local[1]")
        growth.append(_one_core_row(sides, spark))
    finally:
        spark.stop()
    return [
        *_whole_rows(sides),
        flink_row,
        *_stage_rows(sides),
        *_share_rows(sides),
        *_delay_rows(delays),
        *growth,
    ]


def _feeds(bench: Bench) -> list[Feed]:
    ours, kafka = bench.ours.bootstrap, bench.kafka.bootstrap
    by_connector = (pipeline.read_by_connector, pipeline.report_by_connector)
    return [
        Feed(_OURS, ours, pipeline.read_by_source, pipeline.report_by_source),
        Feed(_SAME_PASS, kafka, *by_connector),
        Feed(_OPERATORS, kafka, *by_connector, by_operators=True),
    ]


def _name() -> str:
    return f"run-{next(_NUMBERS)}"


# -- measuring -------------------------------------------------------------------------------


def _measure_wholes(sides: Sides, spark: SparkSession) -> None:
    def measure(feed: Feed, counts: bool) -> None:
        whole = _run_whole(sides, spark, feed, _PARTITIONS)
        if counts:
            sides.wholes.setdefault(feed.name, []).append(whole)

    rounds = range(3 if sides.bench.is_quick else 4)
    sides.each_round("all results", sides.feeds, rounds, measure)


def _run_whole(sides: Sides, spark: SparkSession, feed: Feed, partitions: int) -> Whole:
    topic = f"lines-{next(_NUMBERS)}"
    clients.create_topic(feed.bootstrap, topic, partitions=partitions, config={})
    spec = pipeline.make_spec(feed, sides.folder, topic, _name(), trigger="1 second")
    first, lines = sides.lines[:_FIRST_LINES], sides.lines[_FIRST_LINES:]
    return pipeline.run_whole(spark, feed, spec, lines, first)


def _flink_row(sides: Sides) -> Row:
    bench = sides.bench
    bench.say("pipeline: Flink SQL")
    os.sync()
    ours = [whole.rate for whole in sides.wholes[_OURS]]
    try:
        # Any feed from Kafka: only the way to the broker is used.
        rate = flink.run_windows(sides.feeds[1], bench.path("flink"), sides.lines)
    except flink.NotInstalled as failed:
        bench.say(f"pipeline: no Flink: {failed}")
        return Row(PART, "all results (no Flink beside them: not installed)", "lines/s", ours)
    return Row(
        PART, "all results", "lines/s", ours, [rate], None, "Flink SQL, windows of hosts only"
    )


def _measure_stages(sides: Sides, spark: SparkSession) -> None:
    feeds = [feed for feed in sides.feeds if not feed.by_operators]
    topics = {feed.name: sides.filled_topic(feed, _PARTITIONS) for feed in feeds}

    def measure_stage(stage: str) -> Callable[[Feed, bool], None]:
        def measure(feed: Feed, counts: bool) -> None:
            spec = pipeline.make_spec(feed, sides.folder, topics[feed.name], _name())
            create_topics(spec)
            seconds = pipeline.run_stage(spark, feed, spec, stage)
            if counts:
                rates = sides.stage_rates.setdefault((feed.name, stage), [])
                rates.append(len(sides.lines) / seconds)

        return measure

    for stage in STAGES:
        # Each side first once, for the first has more to compile.
        sides.each_round(stage, feeds, [1, 2], measure_stage(stage))


def _delays(sides: Sides, spark: SparkSession, feed: Feed) -> list[float]:
    sides.bench.say(f"pipeline: delays, {feed.name}")
    topic = f"live-{next(_NUMBERS)}"
    clients.create_topic(feed.bootstrap, topic, partitions=_PARTITIONS, config={})
    spec = pipeline.make_spec(feed, sides.folder, topic, _name(), trigger=_TRIGGER)
    seconds = 10 if sides.bench.is_quick else 20
    return pipeline.live_delays_ms(
        spark, feed, spec, lines_per_second=_LINES_PER_SECOND, seconds=seconds
    )


def _partitions_row(sides: Sides, spark: SparkSession, partitions: int) -> Row:
    what = f"all results, {counted(partitions, 'partition')}"
    return _beside_two(sides, what, _our_rate(sides, spark, what, partitions))


def _one_core_row(sides: Sides, spark: SparkSession) -> Row:
    what = "all results, one core"
    return _beside_two(sides, what, _our_rate(sides, spark, what, _PARTITIONS))


def _our_rate(sides: Sides, spark: SparkSession, what: str, partitions: int) -> list[float]:
    sides.bench.say(f"pipeline: {what}")
    os.sync()
    return [_run_whole(sides, spark, sides.feeds[0], partitions).rate]


def _long_rows(sides: Sides, spark: SparkSession) -> list[Row]:
    count = 1_000_000 if sides.bench.is_quick else 10_000_000
    bench = sides.bench
    steps = run_long(spark, sides.feeds[0], sides.folder, bench.ours, count, bench.say)
    return long_rows(steps)


# -- rows ------------------------------------------------------------------------------------


def _beside_two(sides: Sides, name: str, rates: list[float]) -> Row:
    usual = [whole.rate for whole in sides.wholes[_OURS]]
    return Row(PART, name, "lines/s", rates, usual, None, "with 2 partitions, 2 cores")


def long_rows(steps: Sequence[Step]) -> list[Row]:
    """The last step beside the one at which there was as much state as ever."""
    settled, last = steps[SETTLED_STEP - 1], steps[-1]
    before = f"after {settled.lines:,}"
    after = f"after {last.lines:,} lines"
    return [
        *(
            Row(
                PART,
                f"memory of the {name} {after}",
                "MB",
                [last.memory_mb[name]],
                [settled.memory_mb[name]],
                at_most(_GROWTH_MAX),
                before,
            )
            for name in last.memory_mb
        ),
        Row(
            PART,
            f"a line's delay {after}, p50",
            "s",
            [last.delay_p50_s],
            [settled.delay_p50_s],
            at_most(_GROWTH_MAX),
            before,
        ),
        Row(
            PART,
            f"a line's delay {after}, p99",
            "s",
            [last.delay_p99_s],
            [settled.delay_p99_s],
            None,
            before,
        ),
    ]


def _whole_rows(sides: Sides) -> list[Row]:
    rates = {name: [whole.rate for whole in found] for name, found in sides.wholes.items()}
    sent = [[sides.sent_rates[name][0]] for name in (_OURS, _SAME_PASS)]
    return [
        Row(PART, "lines sent, lz4, acks all", "lines/s", sent[0], sent[1]),
        *(
            Row(PART, "all results", "lines/s", rates[_OURS], rates[name], target, name)
            for name, target in _TARGETS.items()
        ),
        Row(PART, "all results", "lines/s", rates[_OURS], [_RATE_AIM], at_least(1), _AIM),
    ]


def _stage_rows(sides: Sides) -> list[Row]:
    rates = sides.stage_rates
    return [
        Row(
            PART,
            f"up to {stage}",
            "lines/s",
            rates[_OURS, stage],
            rates[_SAME_PASS, stage],
            None,
            _SAME_PASS,
        )
        for stage in STAGES
    ]


def _share_rows(sides: Sides) -> list[Row]:
    """Where the time of our side goes: by stage, then by what Spark does in a batch."""
    shares = stage_shares(
        {stage: statistics.median(sides.stage_rates[_OURS, stage]) for stage in STAGES},
        sides.sent_rates[_OURS][0],
    )
    wholes = sides.wholes[_OURS]
    parts = {
        "asking for offsets": ("latestOffset", "getOffset", "getBatch"),
        "planning": ("queryPlanning",),
        "running": ("addBatch",),
        "checkpoints": ("walCommit", "commitOffsets", "commitBatch"),
    }
    return [
        *(Row(PART, f"share of {name}", "%", [share]) for name, share in shares.items()),
        *(
            Row(PART, f"share of batches: {name}", "%", [whole.share(*keys) for whole in wholes])
            for name, keys in parts.items()
        ),
    ]


def stage_shares(rates: dict[str, float], sent_rate: float) -> dict[str, float]:
    """Percent of the seconds a line takes, from the rates up to each stage."""
    each = {name: 1 / rate for name, rate in rates.items()}
    seconds = {
        "sending": 1 / sent_rate,
        "reading": each[READ],
        "parsing and tables": max(0.0, each[TABLES] - each[READ]),
        "results": max(0.0, each[RESULTS] - each[TABLES]),
    }
    return {name: 100 * value / sum(seconds.values()) for name, value in seconds.items()}


def _delay_rows(delays: dict[str, list[float]]) -> list[Row]:
    def quantile(name: str, percent: int) -> list[float]:
        return [statistics.quantiles(delays[name], n=100)[percent - 1] / 1000]

    return [
        Row(
            PART,
            f"a line's time to its live window, p{percent}, trigger 1 s",
            "s",
            quantile(_OURS, percent),
            theirs,
            target,
            name,
        )
        for percent, limit_seconds in _DELAY_AIMS.items()
        for name, theirs, target in (
            (_AIM, [limit_seconds], at_most(1)),
            (_SAME_PASS, quantile(_SAME_PASS, percent), None),
            (_OPERATORS, quantile(_OPERATORS, percent), None),
        )
    ]
