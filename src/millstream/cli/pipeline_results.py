"""The newest results of a pipeline, read from its topics while it runs."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.pipeline import outputs
from millstream.pipeline.spec import Spec

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_ALERTS_SHOWN: Final = 5
_RECORDS_AT_ONCE: Final = 20_000
_REQUEST_SECONDS_MAX: Final = 10.0


@dataclass(frozen=True, slots=True)
class WindowRow:
    """One line of the newest window."""

    output: str
    name: str
    count: int
    errors: int
    p95_ms: float | None
    # Of the percentile's rank, as a share.
    rank_error: float | None
    visitors: int | None
    # One standard deviation of the estimate of visitors, as a share.
    visitors_sd: float | None


class Results:
    """`read` takes what is there and never waits; the rest shows what was read last."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._consumer: Consumer | None = None
        self._newest_start = ""
        self._rows: dict[tuple[str, str], WindowRow] = {}
        self._window_starts: set[str] = set()
        self.top_pages: list[str] = []
        # By subject: an alert changes while its window is open.
        self._alerts: dict[tuple[str, ...], str] = {}
        self._open_visits: set[bytes] = set()
        self._funnels: dict[str, list[tuple[str, int]]] = {}

    @property
    def window_count(self) -> int:
        return len(self._window_starts)

    @property
    def window_start(self) -> str:
        return self._newest_start

    def rows(self) -> list[WindowRow]:
        return [self._rows[key] for key in sorted(self._rows)]

    @property
    def alerts(self) -> list[str]:
        """The last ones that appeared or changed, newest last."""
        return list(self._alerts.values())[-_ALERTS_SHOWN:]

    @property
    def alert_count(self) -> int:
        return len(self._alerts)

    @property
    def open_visit_count(self) -> int:
        """Of those that changed since this began to read."""
        return len(self._open_visits)

    def funnel(self) -> list[tuple[str, int]]:
        """Visits, then those that reached each step: of all windows that were read."""
        totals: dict[str, int] = {}
        for steps in self._funnels.values():
            for step, visits in steps:
                totals[step] = totals.get(step, 0) + visits
        return list(totals.items())

    def read(self) -> None:
        consumer = self._consumer or self._connect()
        for message in consumer.consume(_RECORDS_AT_ONCE, timeout=0):
            if not message.error():
                self._take(message.topic(), message.key(), message.value())

    def _take(self, topic: str | None, key: bytes | None, value: bytes | None) -> None:
        spec = self._spec
        if topic == outputs.VISITS.topic(spec) and key is not None:
            if value is None:
                self._open_visits.discard(key)
            else:
                self._open_visits.add(key)
        elif value is None:
            return
        elif topic == outputs.ALERTS.topic(spec):
            self._take_alert(value)
        elif topic == outputs.FUNNELS.topic(spec):
            self._take_funnel(value)
        else:
            self._take_window(value)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def _connect(self) -> "Consumer":
        """Starts at the current ends: results of an earlier run are not shown as new."""
        from confluent_kafka import OFFSET_END, Consumer, TopicPartition

        self._consumer = Consumer(
            {
                "bootstrap.servers": self._spec.bootstrap,
                "group.id": f"{self._spec.name}-screen",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        partitions = []
        for output in (outputs.LIVE, outputs.ALERTS, outputs.VISITS, outputs.FUNNELS):
            topic = output.topic(self._spec)
            known = self._consumer.list_topics(topic, timeout=_REQUEST_SECONDS_MAX).topics[topic]
            partitions += [TopicPartition(topic, each, OFFSET_END) for each in known.partitions]
        self._consumer.assign(partitions)
        return self._consumer

    def _take_window(self, value: bytes) -> None:
        row = json.loads(value)
        start = row["window_start"]
        self._window_starts.add(start)
        if start < self._newest_start:
            return
        if start > self._newest_start:
            self._newest_start = start
            self._rows.clear()
        self._rows[row["output"], row["name"]] = WindowRow(
            row["output"],
            row["name"],
            row["count"],
            row["errors"],
            row.get("duration_ms_p95"),
            row.get("percentile_rank_error"),
            row.get("visitors"),
            row.get("visitors_relative_sd"),
        )
        if row.get("top_pages"):
            self.top_pages = [f"{each['path']} {each['count']}" for each in row["top_pages"][:5]]

    def _take_funnel(self, value: bytes) -> None:
        row = json.loads(value)
        steps = [(each["step"], each["visits"]) for each in row["steps"]]
        self._funnels[row["window_start"]] = [("visits", row["visits"]), *steps]

    def _take_alert(self, value: bytes) -> None:
        row = json.loads(value)
        about = (row["kind"], row["subject"], row["since"])
        self._alerts.pop(about, None)
        self._alerts[about] = f"{row['since'][11:19]} {row['kind']}: {row['subject']} {row['text']}"
