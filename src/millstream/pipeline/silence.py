"""Hosts that fall silent, and hosts that come back: alerts by processing time.

Silence brings no event that could move a watermark, so the machine's own clock counts here:
each host has a timer that every line of it puts off.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from millstream.pipeline.spec import Spec

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

SCHEMA: Final = "kind string, subject string, since timestamp, text string"


class HostWatch(StatefulProcessor):
    """State of a host: when it last spoke, and whether an alert for its silence is out."""

    def __init__(self, silent_after_ms: int) -> None:
        self._silent_after_ms = silent_after_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("host", "last_ms long, is_silent boolean")

    # Keys, rows and values are tuples of whatever types the query has.
    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: "TimerValues"
    ) -> Iterator[pd.DataFrame]:
        for _ in rows:
            pass
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        before = self._state.get()
        self._state.update((now_ms, False))
        for timer_ms in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer_ms)
        self._handle.registerTimer(now_ms + self._silent_after_ms)
        if before is not None and before[1]:
            yield _alert("back", key[0], now_ms, "speaks again")

    def handleExpiredTimer(
        self, key: Any, timerValues: "TimerValues", expiredTimerInfo: "ExpiredTimerInfo"
    ) -> Iterator[pd.DataFrame]:
        before = self._state.get()
        if before is None or before[1]:
            return
        self._state.update((before[0], True))
        seconds = self._silent_after_ms / 1000
        yield _alert("silent", key[0], before[0], f"said nothing for {seconds:g} s")

    def close(self) -> None:
        pass


def _alert(kind: str, host: str, since_ms: int, text: str) -> pd.DataFrame:
    since = pd.Timestamp(since_ms, unit="ms")
    return pd.DataFrame({"kind": [kind], "subject": [host], "since": [since], "text": [text]})


def silent_hosts(events: DataFrame, spec: Spec) -> DataFrame:
    """A row when a host falls silent and one when it is back."""
    heard = events.where("problem IS NULL AND host IS NOT NULL").select("host")
    return (
        heard.mapInArrow(_distinct_hosts, "host string")
        .groupBy("host")
        .transformWithStateInPandas(
            HostWatch(spec.silent_after_ms), SCHEMA, "Append", "ProcessingTime"
        )
    )


def _distinct_hosts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One line of a host is as good as thousands, and cheaper to carry around."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.unique(batch.column("host"))], ["host"])
