"""Lines per second through the pipeline on Spark, beside the same queries fed from Kafka.

Every query, table and setting is the same on both sides, in one session of two cores. Kafka's
lines come through Spark's own connector, and go from there to a Python worker for the same
compiled parser that runs inside our source. *All queries* sends lines to queries that are at
work, until all of them are in live and closed windows, visits, dead letters and tables; one round
does not count, for Java compiles most of the code in it, and each side is first in every other
round. A stage is everything up to it, over lines that lie in a topic, run twice after that.
Delays are those of a trigger of five seconds, all queries running.
"""

import itertools
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from bench import clients, pipeline
from bench.bench import Bench
from bench.brokers import Broker
from bench.pipeline import STAGES, TABLES, Feed, Whole
from bench.rows import Row, at_least
from millstream.cli.output import counted
from millstream.ingest.traffic import TrafficLine
from millstream.pipeline.queries import read_input
from millstream.pipeline.run import create_topics

PART = "pipeline"
_CONNECTOR: Final = "Kafka and Spark's connector"
_PARTITIONS: Final = 2
_TRIGGER: Final = "5 seconds"
_LINES_PER_SECOND: Final = 300
_TARGET: Final = at_least(1.3)
_NUMBERS: Final = itertools.count()
# Queries have taken these, and are at work, when the others are sent.
_FIRST_LINES: Final = 2000


@dataclass(slots=True)
class Sides:
    """Both feeds, with what was measured on each, round by round."""

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
        self, what: str, numbers: Sequence[int], measure: Callable[[Feed, bool], None]
    ) -> None:
        """Both sides, each first in every other round; round 0, if there is one, does not count.

        Java goes on compiling for several rounds, so whoever comes second has it easier.
        """
        for number in numbers:
            for feed in self.feeds if number % 2 == 0 else reversed(self.feeds):
                os.sync()
                self.bench.say(f"pipeline: {what}, {feed.name}, round {number} of {numbers[-1]}")
                measure(feed, number > 0)


def run(bench: Bench) -> list[Row]:
    folder = bench.path("pipeline")
    folder.mkdir()
    lines = pipeline.make_lines(200_000 if bench.is_quick else 1_500_000)
    sides = Sides(bench, folder, [_ours(bench.ours), _kafka(bench.kafka)], lines)
    bench.say("pipeline: starting a session")
    spark = pipeline.start_session(folder, "local[2]")
    try:
        topics = {feed.name: sides.filled_topic(feed, _PARTITIONS) for feed in sides.feeds}
        _measure_wholes(sides, spark)
        _measure_stages(sides, spark, topics)
        delays = {feed.name: _delays(sides, spark, feed) for feed in sides.feeds}
        growth = [_partitions_row(sides, spark, count) for count in (1, 4)]
        spark.stop()
        spark = pipeline.start_session(folder, "local[1]")
        growth.append(_one_core_row(sides, spark))
    finally:
        spark.stop()
    return [
        *_whole_rows(sides),
        *_stage_rows(sides),
        *_share_rows(sides),
        *_delay_rows(delays),
        *growth,
    ]


def _ours(broker: Broker) -> Feed:
    return Feed("Millstream", broker.bootstrap, read_input)


def _kafka(broker: Broker) -> Feed:
    return Feed("Kafka", broker.bootstrap, pipeline.read_by_connector)


def _name() -> str:
    return f"run-{next(_NUMBERS)}"


# -- measuring -------------------------------------------------------------------------------


def _measure_wholes(sides: Sides, spark: SparkSession) -> None:
    def measure(feed: Feed, counts: bool) -> None:
        whole = _run_whole(sides, spark, feed, _PARTITIONS)
        if counts:
            sides.wholes.setdefault(feed.name, []).append(whole)

    sides.each_round("all queries", range(3 if sides.bench.is_quick else 4), measure)


def _run_whole(sides: Sides, spark: SparkSession, feed: Feed, partitions: int) -> Whole:
    topic = f"lines-{next(_NUMBERS)}"
    clients.create_topic(feed.bootstrap, topic, partitions=partitions, config={})
    spec = pipeline.make_spec(feed, sides.folder, topic, _name(), trigger="1 second")
    first, lines = sides.lines[:_FIRST_LINES], sides.lines[_FIRST_LINES:]
    return pipeline.run_whole(spark, feed, spec, lines, first)


def _measure_stages(sides: Sides, spark: SparkSession, topics: dict[str, str]) -> None:
    def measure_stage(stage: str) -> Callable[[Feed, bool], None]:
        def measure(feed: Feed, counts: bool) -> None:
            spec = pipeline.make_spec(feed, sides.folder, topics[feed.name], _name())
            create_topics(spec)
            seconds = pipeline.run_stage(spark, feed, spec, stage)
            if counts:
                rates = sides.stage_rates.setdefault((feed.name, stage), [])
                rates.append(len(sides.lines) / seconds)

        return measure

    for stage in [*STAGES, TABLES]:
        # Each side first once, for the first has more to compile.
        sides.each_round(stage, [1, 2], measure_stage(stage))


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
    what = f"all queries, {counted(partitions, 'partition')}"
    return _beside_two(sides, what, _our_rate(sides, spark, what, partitions))


def _one_core_row(sides: Sides, spark: SparkSession) -> Row:
    what = "all queries, one core"
    return _beside_two(sides, what, _our_rate(sides, spark, what, _PARTITIONS))


def _our_rate(sides: Sides, spark: SparkSession, what: str, partitions: int) -> list[float]:
    sides.bench.say(f"pipeline: {what}")
    os.sync()
    return [_run_whole(sides, spark, sides.feeds[0], partitions).rate]


# -- rows ------------------------------------------------------------------------------------


def _beside_two(sides: Sides, name: str, rates: list[float]) -> Row:
    usual = [whole.rate for whole in sides.wholes["Millstream"]]
    return Row(PART, name, "lines/s", rates, usual, None, "with 2 partitions, 2 cores")


def _whole_rows(sides: Sides) -> list[Row]:
    ours, kafka = sides.wholes["Millstream"], sides.wholes["Kafka"]
    rates = [[whole.rate for whole in side] for side in (ours, kafka)]
    sent = [[sides.sent_rates[name][0]] for name in ("Millstream", "Kafka")]
    return [
        Row(PART, "lines sent, lz4, acks all", "lines/s", sent[0], sent[1]),
        Row(PART, "all queries", "lines/s", rates[0], rates[1], _TARGET, _CONNECTOR),
    ]


def _stage_rows(sides: Sides) -> list[Row]:
    rates = sides.stage_rates
    return [
        Row(
            PART,
            f"up to {stage}",
            "lines/s",
            rates["Millstream", stage],
            rates["Kafka", stage],
            None,
            _CONNECTOR,
        )
        for stage in [*STAGES, TABLES]
    ]


def _share_rows(sides: Sides) -> list[Row]:
    """Where the time of our side goes: by stage, then by what Spark does in a batch."""
    shares = stage_shares(
        {stage: statistics.median(sides.stage_rates["Millstream", stage]) for stage in STAGES},
        statistics.median(sides.stage_rates["Millstream", TABLES]),
        sides.sent_rates["Millstream"][0],
    )
    wholes = sides.wholes["Millstream"]
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


def stage_shares(rates: dict[str, float], tables_rate: float, sent_rate: float) -> dict[str, float]:
    """Percent of the seconds a line takes, from the rates up to each stage.

    Four queries read and parse the lines; what each does beyond is its own.
    """
    each = {name: 1 / rate for name, rate in rates.items()}
    beyond = {**{name: each[name] for name in list(each)[2:]}, TABLES: 1 / tables_rate}
    seconds = {
        "sending": 1 / sent_rate,
        "reading": each["read"] * len(beyond),
        "parsing": (each["parse"] - each["read"]) * len(beyond),
        **{name: max(0.0, value - each["parse"]) for name, value in beyond.items()},
    }
    return {name: 100 * value / sum(seconds.values()) for name, value in seconds.items()}


def _delay_rows(delays: dict[str, list[float]]) -> list[Row]:
    def quantile(name: str, percent: int) -> list[float]:
        return [statistics.quantiles(delays[name], n=100)[percent - 1] / 1000]

    return [
        Row(
            PART,
            f"a line's time to its live window, p{percent}, trigger 5 s",
            "s",
            quantile("Millstream", percent),
            quantile("Kafka", percent),
            None,
            _CONNECTOR,
        )
        for percent in (50, 99)
    ]
