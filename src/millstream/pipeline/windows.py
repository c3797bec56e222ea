"""Windows of time from the table of events, computed by Spark: for `rebuild` and `backfill`.

In real time `partials` and `open_results` count the same windows. Everything but the percentiles is
exact, by two aggregations one after the other: first each visitor and each page, then the window.

An event counts in several groups at once: the whole input, its host, its service, the site.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from millstream.pipeline.counters import FORGOTTEN_AFTER_US, SECOND_US
from millstream.pipeline.partials import COUNTER_MAX, ERROR_LEVELS, ERROR_STATUS, VIEW_FORMATS
from millstream.pipeline.results import PERCENTILE_RANK_ERROR, PERCENTILES
from millstream.pipeline.spec import Spec
from millstream.pipeline.window_totals import ALL, HOST, INPUT, SERVICE, SITE

_PERCENTILE_ACCURACY: Final = round(1 / PERCENTILE_RANK_ERROR)
# Rows that become a place in the list of top pages.
_PAGE: Final = "page"

# Columns of an event that `is_error` and `is_page_view` look at.
JUDGED: Final = ("problem", "event_time", "status", "level", "format", "path", "visitor")
# And all that windows are made from.
NEEDED: Final = (
    *(*JUDGED, "host", "service", "size_bytes", "duration_ms", "gauges"),
    *("source", "partition", "offset"),
)


def countable(events: DataFrame, spec: Spec) -> DataFrame:
    """Events that count, with the watermark; it is wide enough never to drop one of them."""
    good = events.where("problem IS NULL").withColumn("is_error", is_error())
    return good.withWatermark("event_time", f"{spec.watermark_delay_ms} milliseconds")


def is_error() -> Column:
    by_status = F.coalesce(F.col("status") >= ERROR_STATUS, F.lit(False))
    return by_status | F.coalesce(F.col("level").isin(*ERROR_LEVELS), F.lit(False))


def is_page_view() -> Column:
    return F.col("format").isin(*VIEW_FORMATS) & F.col("path").isNotNull()


def live_windows(events: DataFrame, spec: Spec) -> DataFrame:
    """As they stand while they are open."""
    return _windows(events, spec, is_final=False)


def final_windows(events: DataFrame, spec: Spec) -> DataFrame:
    return _windows(events, spec, is_final=True)


def _windows(events: DataFrame, spec: Spec, *, is_final: bool) -> DataFrame:
    groups = F.array(
        _group(INPUT, F.lit(ALL), F.lit(True)),
        _group(HOST, F.col("host"), F.col("host").isNotNull()),
        _group(SERVICE, F.col("service"), F.col("service").isNotNull()),
        _group(SITE, F.lit(ALL), is_page_view()),
        _group(_PAGE, F.col("path"), is_page_view()),
    )
    rows = _exploded(countable(events, spec), groups, spec).withColumn(
        "item", F.when(F.col("output") == SITE, F.col("visitor"))
    )
    first = rows.groupBy(_window(spec), "output", "name", "item").agg(
        *_counts(), _percentiles().alias("percentiles"), *_gauges(spec)
    )
    # Pages become rows of the site: what they add there is a place in the list.
    is_page = F.col("output") == _PAGE
    merged = first.select(
        "window",
        F.when(is_page, SITE).otherwise(F.col("output")).alias("output"),
        F.when(is_page, ALL).otherwise(F.col("name")).alias("name"),
        F.when(is_page, F.struct((-F.col("count")).alias("order"), F.col("name").alias("path")))
        .alias("page"),
        F.when(~is_page, F.col("item")).alias("item"),
        *(F.when(~is_page, F.col(name)).alias(name) for name in _COUNTED),
        *(F.when(~is_page, F.col(name)).alias(name) for name in _first_of(spec)),
    )  # fmt: skip
    second = merged.groupBy("window", "output", "name").agg(
        *(F.sum(name).alias(name) for name in ("count", "errors", "size_bytes", "timed")),
        F.max("duration_max").alias("duration_max"),
        # Only sites have several rows here, and neither latency nor gauges.
        *(F.first(name, ignorenulls=True).alias(name) for name in _first_of(spec)),
        F.count("item").alias("visitors"),
        F.slice(F.sort_array(F.collect_list("page")), 1, spec.top).alias("top"),
    )
    pages = F.transform(
        "top",
        lambda each: F.struct(each["path"].alias("path"), (-each["order"]).alias("count")),
    )
    if spec.counters:
        second = second.join(_grown(events, spec), ["window", "output", "name"], "left")
    return second.select(*_result(spec, is_final=is_final, top=pages))


def _grown(events: DataFrame, spec: Spec) -> DataFrame:
    """The growth of each counter of a host in each window: what `counters` says, in Spark."""
    first = len(spec.gauges)
    told = [
        F.struct(
            F.lit(place).alias("counter"), _told_gauge(events, first + place, name).alias("value")
        )
        for place, name in enumerate(spec.counters)
    ]
    samples = (
        events.where("problem IS NULL AND host IS NOT NULL")
        .withColumn("service", F.coalesce("service", F.lit("")))
        .withColumn("at_us", F.unix_micros("event_time"))
        .select("*", F.explode(F.array(*told)).alias("told"))
        .select("*", "told.*")
        .where(f"value >= 0 AND value < {COUNTER_MAX}")
    )
    series = ("host", "source", "service", "counter")
    order = ("at_us", "partition", "offset", "value")
    # Of each second the last sample counts.
    second = Window.partitionBy(*series, F.floor(F.col("at_us") / SECOND_US))
    newest = second.orderBy(*(F.col(each).desc() for each in order))
    ordered = Window.partitionBy(*series).orderBy(*order)
    steps = (
        samples.withColumn("place", F.row_number().over(newest))
        .where("place = 1")
        .withColumn("elapsed_us", F.col("at_us") - F.lag("at_us").over(ordered))
        .withColumn("before", F.lag("value").over(ordered))
        .where(F.col("elapsed_us") <= FORGOTTEN_AFTER_US)
        .withColumn(
            "increase",
            F.when(F.col("value") >= F.col("before"), F.col("value") - F.col("before"))
            .otherwise(F.col("value")),
        )
    )  # fmt: skip
    of_series = steps.groupBy(_window(spec), *series).agg(
        F.sum("increase").alias("increase"),
        (F.sum("increase") * SECOND_US / F.sum("elapsed_us")).alias("per_second"),
    )
    growth = F.struct(F.sum("increase").alias("increase"), F.sum("per_second").alias("per_second"))
    of_hosts = of_series.groupBy("window", "host", "counter").agg(growth.alias("growth"))
    each = F.map_from_entries(F.collect_list(F.struct("counter", "growth")))
    return of_hosts.groupBy("window", F.lit(HOST).alias("output"), F.col("host").alias("name")).agg(
        each.alias("grown")
    )


_COUNTED: Final = ("count", "errors", "size_bytes", "timed", "duration_max")


def _group(output: str, name: Column, condition: Column) -> Column:
    group = F.struct(F.lit(output).alias("output"), name.alias("name"))
    return F.when(condition, group)


def _exploded(events: DataFrame, groups: Column, spec: Spec) -> DataFrame:
    used = ("event_time", "is_error", "size_bytes", "duration_ms", "visitor", "path")
    told = [
        _told_gauge(events, number, name).alias(_gauge(number))
        for number, name in enumerate(spec.gauges)
    ]
    exploded = events.select(*used, *told, F.explode(F.array_compact(groups)).alias("group"))
    is_host = F.col("group.output") == HOST
    names = map(_gauge, range(len(spec.gauges)))
    # A gauge is a host's.
    gauges = [F.when(is_host, F.col(name)).alias(name) for name in names]
    return exploded.select(*used, *gauges, "group.*")


def _told_gauge(events: DataFrame, number: int, name: str) -> Column:
    # Events that were just parsed have them; in a table they are among the fields.
    if "gauges" in events.columns:
        return F.get("gauges", F.lit(number))
    return F.try_element_at("fields", F.lit(name)).try_cast("double")


def _gauge(number: int) -> str:
    return f"gauge_{number}"


def _gauges(spec: Spec) -> list[Column]:
    """Mean and largest value of each, as one column for each."""
    names = [_gauge(number) for number in range(len(spec.gauges))]
    return [
        F.when(F.count(name) > 0, F.struct(F.avg(name).alias("mean"), F.max(name).alias("max")))
        .alias(name)
        for name in names
    ]  # fmt: skip


def _first_of(spec: Spec) -> list[str]:
    return ["percentiles", *(_gauge(number) for number in range(len(spec.gauges)))]


def _window(spec: Spec) -> Column:
    return F.window("event_time", f"{spec.window_ms} milliseconds")


def _counts() -> list[Column]:
    return [
        F.count(F.lit(1)).alias("count"),
        F.sum(F.col("is_error").cast("long")).alias("errors"),
        F.sum(F.coalesce(F.col("size_bytes"), F.lit(0))).alias("size_bytes"),
        F.count("duration_ms").alias("timed"),
        F.max("duration_ms").alias("duration_max"),
    ]


def _percentiles() -> Column:
    return F.approx_percentile("duration_ms", list(PERCENTILES), _PERCENTILE_ACCURACY)


def _result(spec: Spec, *, is_final: bool, top: Column) -> list[Column]:
    is_site, has_times = F.col("output") == SITE, F.col("timed") > 0
    return [
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        F.col("output"),
        F.col("name"),
        F.lit(is_final).alias("final"),
        F.col("count"),
        F.round(F.col("count") * 1000 / spec.window_ms, 3).alias("per_second"),
        F.col("errors"),
        F.col("size_bytes"),
        *(
            F.when(has_times, F.get("percentiles", F.lit(index))).alias(
                f"duration_ms_p{share * 100:g}"
            )
            for index, share in enumerate(PERCENTILES)
        ),
        F.when(has_times, F.col("duration_max")).alias("duration_ms_max"),
        F.when(has_times, F.lit(PERCENTILE_RANK_ERROR)).alias("percentile_rank_error"),
        F.when(is_site, F.col("visitors")).alias("visitors"),
        F.when(is_site, F.lit(0.0)).alias("visitors_relative_sd"),
        F.when(is_site, top).alias("top_pages"),
        *(F.col(_gauge(number)).alias(name) for number, name in enumerate(spec.gauges)),
        *(
            F.try_element_at("grown", F.lit(number)).alias(name)
            for number, name in enumerate(spec.counters)
        ),
    ]
