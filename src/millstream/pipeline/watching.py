"""What is known at once, by the machine's own clock: silent hosts, open visits, their funnel.

One query for all of it, with two stateful operators one after the other. The first follows
each host and each visitor. The second passes on the rows of the first and counts, for each
window, how far the visits that began in it have come. Both write whenever something changed,
whatever the watermark is: a visit is shown while it is open, and removed when the clock says
that it has ended.

Times cross from Python as whole microseconds: Spark would read a time without a zone in
that of the session, or of the machine.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from millstream.pipeline.ended_visits import funnel_step
from millstream.pipeline.open_visits import View, Visit, count_steps, follow
from millstream.pipeline.silence import HostAlert, HostWatch
from millstream.pipeline.spec import Spec
from millstream.pipeline.windows import JUDGED, is_error, is_page_view

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

NEEDED: Final = (*JUDGED, "host", "partition", "offset")
_HOST: Final = "host"
_VISITOR: Final = "visitor"
# Kinds of rows, beside those of alerts.
OPEN: Final = "visit"
OVER: Final = "over"
# Counted by the funnel; a newer visit of the same visitor is in the same batch.
_REPLACED: Final = "replaced"
FUNNEL: Final = "funnel"
FUNNEL_KEY: Final = ("window_start",)
_ALERTS: Final = frozenset({"silent", "back"})
_VISITS: Final = frozenset({OPEN, OVER})

_HEARD: Final = (
    "kind string, name string, at_us long, is_error boolean, step int, partition int, offset long"
)
_SEEN: Final = (
    "kind string, subject string, since_us long, text string, last_us long, views long, "
    "errors long, step int, step_before int, window_us long"
)
_COUNTED: Final = _SEEN + ", counts array<long>"
# Rows of them with nothing said yet.
_NOTHING_SEEN: Final = dict.fromkeys(each.split()[0] for each in _SEEN.split(", "))
_NOTHING: Final = {**_NOTHING_SEEN, "counts": None}


def watch(events: DataFrame, spec: Spec) -> DataFrame:
    """A row for every alert, every visit that changed or ended, and every changed funnel."""
    is_view = is_page_view() & F.col("visitor").isNotNull()
    good = events.where("problem IS NULL").select(
        F.col("host").alias(_HOST),
        F.when(is_view, F.col("visitor")).alias(_VISITOR),
        F.unix_micros("event_time").alias("at_us"),
        is_error().alias("is_error"),
        funnel_step(spec.funnel).alias("step"),
        "partition",
        "offset",
    )
    seen = (
        good.mapInArrow(_heard, _HEARD)
        .groupBy("kind", "name")
        .transformWithState(_Watch(spec), _SEEN, "Append", "ProcessingTime")
    )
    # Rows that no funnel counts have window 0, and pass.
    return seen.groupBy("window_us").transformWithState(
        _FunnelWatch(spec), _COUNTED, "Append", "ProcessingTime"
    )


def _heard(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Every host once, because one line is enough; and every page view."""
    for batch in batches:
        hosts = pc.drop_null(pc.unique(batch.column(_HOST)))
        views = batch.filter(pc.is_valid(batch.column(_VISITOR)))
        for kind, names, rows in ((_HOST, hosts, None), (_VISITOR, views.column(_VISITOR), views)):
            count = len(names)
            others = [
                pa.nulls(count, batch.schema.field(name).type)
                if rows is None
                else rows.column(name)
                for name in ("at_us", "is_error", "step", "partition", "offset")
            ]
            columns = [pa.array([kind] * count, pa.string()), names, *others]
            yield pa.RecordBatch.from_arrays(
                columns, ["kind", "name", "at_us", "is_error", "step", "partition", "offset"]
            )


class _Watch(StatefulProcessor):
    """Of one host or one visitor, by its key."""

    def __init__(self, spec: Spec) -> None:
        self._silent_after_ms = spec.silent_after_ms
        self._gap_ms = spec.session_gap_ms
        self._window_ms = spec.window_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._host = HostWatch(handle, silent_after_ms=self._silent_after_ms)
        self._visitor = VisitorWatch(handle, gap_ms=self._gap_ms, window_ms=self._window_ms)

    # Keys and rows are of whatever types the query has.
    def handleInputRows(
        self, key: Any, rows: Iterator[Row], timerValues: "TimerValues"
    ) -> Iterator[Row]:
        kind, name = key
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        if kind == _HOST:
            for _ in rows:
                pass
            yield from (_alert_row(name, alert) for alert in self._host.hear(now_ms))
        else:
            yield from self._visitor.hear(name, rows, now_ms)

    def handleExpiredTimer(
        self, key: Any, timerValues: "TimerValues", expiredTimerInfo: "ExpiredTimerInfo"
    ) -> Iterator[Row]:
        kind, name = key
        if kind == _HOST:
            yield from (_alert_row(name, alert) for alert in self._host.wake())
        else:
            yield from self._visitor.wake(name, timerValues.getCurrentProcessingTimeInMs())

    def close(self) -> None:
        pass


class VisitorWatch:
    """State of a visitor: the open visit, and when its last view arrived here."""

    _SCHEMA: Final = (
        "start_us long, last_us long, views long, errors long, step int, window_us long, "
        "heard_ms long"
    )

    def __init__(self, handle: StatefulProcessorHandle, *, gap_ms: int, window_ms: int) -> None:
        self._handle = handle
        self._gap_ms = gap_ms
        self._window_us = window_ms * 1000
        self._state = handle.getValueState("visit", self._SCHEMA)

    def hear(self, visitor: str, rows: Iterator[Row], now_ms: int) -> Iterator[Row]:
        before = self._state.get()
        # The record's offset orders views of the same moment, the same way every time.
        ordered = sorted(rows, key=lambda row: (row.at_us, row.partition, row.offset))
        changes = follow(
            None if before is None else Visit(*before[:-1]),
            [View(row.at_us, row.is_error, row.step) for row in ordered],
            gap_us=self._gap_ms * 1000,
            window_us=self._window_us,
        )
        if not changes:
            return
        last = changes[-1].visit
        self._state.update(
            (
                *(last.start_us, last.last_us, last.views, last.errors, last.step, last.window_us),
                now_ms,
            )
        )
        if before is None:
            self._handle.registerTimer(now_ms + self._gap_ms)
        for change in changes:
            kind = OPEN if change.visit is last else _REPLACED
            yield _visit_row(kind, visitor, change.visit, change.step_before)

    def wake(self, visitor: str, now_ms: int) -> Iterator[Row]:
        """The timer of a visit is moved when it fires, not at every view: that is cheaper."""
        before = self._state.get()
        if before is None:
            return
        end_ms = before[-1] + self._gap_ms
        if end_ms > now_ms:
            self._handle.registerTimer(end_ms)
            return
        self._state.clear()
        yield Row(**{**_NOTHING_SEEN, "kind": OVER, "subject": visitor, "window_us": 0})


class _FunnelWatch(StatefulProcessor):
    """State of a window: how many visits began in it, and how many reached each step."""

    def __init__(self, spec: Spec) -> None:
        self._steps = len(spec.funnel)
        # All visits of a window have ended when none of them changed for as long as one may pause.
        self._keep_ms = 2 * spec.session_gap_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("funnel", "counts array<long>, heard_ms long")

    def handleInputRows(
        self, key: Any, rows: Iterator[Row], timerValues: "TimerValues"
    ) -> Iterator[Row]:
        [window_us] = key
        moves = []
        for row in rows:
            if window_us:
                moves.append((row.step_before, row.step))
            yield Row(**row.asDict(), counts=None)
        if not any(now > before for before, now in moves):
            return
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        before = self._state.get()
        counts = count_steps([0] * (self._steps + 1) if before is None else before[0], moves)
        self._state.update((counts, now_ms))
        if before is None:
            self._handle.registerTimer(now_ms + self._keep_ms)
        yield Row(**{**_NOTHING, "kind": FUNNEL, "window_us": window_us, "counts": counts})

    def handleExpiredTimer(
        self, key: Any, timerValues: "TimerValues", expiredTimerInfo: "ExpiredTimerInfo"
    ) -> Iterator[Row]:
        before = self._state.get()
        if before is not None:
            end_ms = before[1] + self._keep_ms
            if end_ms > timerValues.getCurrentProcessingTimeInMs():
                self._handle.registerTimer(end_ms)
            else:
                self._state.clear()
        return iter(())

    def close(self) -> None:
        pass


def _alert_row(host: str, alert: HostAlert) -> Row:
    said = {"kind": alert.kind, "subject": host, "since_us": alert.since_ms * 1000}
    return Row(**{**_NOTHING_SEEN, **said, "text": alert.text, "window_us": 0})


def _visit_row(kind: str, visitor: str, visit: Visit, step_before: int) -> Row:
    return Row(
        kind=kind,
        subject=visitor,
        since_us=visit.start_us,
        text=None,
        last_us=visit.last_us,
        views=visit.views,
        errors=visit.errors,
        step=visit.step,
        step_before=step_before,
        window_us=visit.window_us,
    )


# -- rows into records -------------------------------------------------------------------------


def alerts(watched: DataFrame) -> DataFrame:
    return watched.where(F.col("kind").isin(*_ALERTS)).select(
        "kind", "subject", F.timestamp_micros("since_us").alias("since"), "text"
    )


def visit_records(watched: DataFrame, spec: Spec) -> DataFrame:
    """By visitor: the open visit, in the form of ended ones; nothing once it has ended."""
    value = F.to_json(
        F.struct(
            F.col("subject").alias("visitor"),
            F.timestamp_micros("since_us").alias("session_start"),
            F.timestamp_micros("last_us").alias("session_end"),
            F.lit(False).alias("final"),
            "views",
            "errors",
            F.col("step").alias("funnel_step"),
            F.lit(len(spec.funnel)).alias("funnel_steps"),
        )
    )
    return watched.where(F.col("kind").isin(*_VISITS)).select(
        F.to_json(F.struct(F.col("subject").alias("visitor"))).alias("key"),
        F.when(F.col("kind") == OPEN, value).alias("value"),
    )


def funnels(watched: DataFrame, spec: Spec) -> DataFrame:
    """By window: visits that began in it, and how many of them reached each step so far."""
    steps = [
        F.struct(F.lit(page).alias("step"), F.get("counts", F.lit(number)).alias("visits"))
        for number, page in enumerate(spec.funnel, start=1)
    ]
    return watched.where(F.col("kind") == FUNNEL).select(
        F.timestamp_micros("window_us").alias("window_start"),
        F.timestamp_micros(F.col("window_us") + spec.window_ms * 1000).alias("window_end"),
        F.lit(False).alias("final"),
        F.get("counts", F.lit(0)).alias("visits"),
        F.array(*steps).cast("array<struct<step:string,visits:long>>").alias("steps"),
    )


Write = Callable[[DataFrame, int], None]


def writer(spec: Spec, *, write_alerts: Write, write_visits: Write, write_funnels: Write) -> Write:
    def write(batch: DataFrame, number: int) -> None:
        batch = batch.persist()
        try:
            # The clock starts batches even if nothing arrived: most have nothing for most topics.
            kinds = {row.kind for row in batch.select("kind").distinct().collect()}
            if kinds & _ALERTS:
                write_alerts(alerts(batch), number)
            if kinds & _VISITS:
                write_visits(visit_records(batch, spec), number)
            if FUNNEL in kinds:
                write_funnels(funnels(batch, spec), number)
        finally:
            batch.unpersist()

    return write
