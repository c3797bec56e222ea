"""Runs a pipeline: its topics, its queries, and their reports, until it is stopped."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from millstream.pipeline.differences import differences, keep
from millstream.pipeline.outputs import OUTPUTS
from millstream.pipeline.progress import Watched
from millstream.pipeline.queries import LINES, start_lines
from millstream.pipeline.reporting.reports import report_on
from millstream.pipeline.restarts import Restarts
from millstream.pipeline.spec import Change, Spec, SpecError
from millstream.pipeline.status import (
    PipelineStatus,
    QueryStatus,
    query_status,
    write_status,
)
from millstream.spark import lag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_SECONDS: Final = 1.0
_REQUEST_SECONDS_MAX: Final = 20.0
_REPORTS_EVERY_SECONDS: Final = 60.0


class PipelineFailed(Exception):
    """A query ended by an error; the text is Spark's reason, shortened."""


def check_differences(spec: Spec) -> None:
    """Refuse what the stored state cannot follow, before Spark fails with its own message."""
    refused = [each for each in differences(spec) if each.change is Change.STATE]
    if refused:
        first = refused[0]
        raise SpecError(
            f"{first.setting} was {first.before} and is now {first.now}: "
            f"it {first.change.value} (stored in {spec.home})"
        )


def create_topics(spec: Spec) -> list[str]:
    """Create the missing result topics."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": spec.bootstrap, "log_level": 0})
    known = admin.list_topics(timeout=_REQUEST_SECONDS_MAX).topics
    missing = [
        NewTopic(
            output.topic(spec),
            num_partitions=spec.state_partitions,
            # As many as the cluster's default.
            replication_factor=-1,
            config=dict(output.configs),
        )
        for output in OUTPUTS
        if output.topic(spec) not in known
    ]
    if missing:
        for answer in admin.create_topics(missing).values():
            answer.result(_REQUEST_SECONDS_MAX)
    return [topic.topic for topic in missing]


@dataclass(slots=True)
class Running:
    """A running pipeline."""

    spec: Spec
    session: "SparkSession"
    is_once: bool
    query: "StreamingQuery | None" = None
    watched: Watched = field(default_factory=Watched)
    restarts: Restarts = field(default_factory=Restarts)
    # When a query that failed is started again.
    resume_at: float | None = None

    def start(self) -> None:
        self.query = start_lines(self.session, self.spec, LINES, self.watched, once=self.is_once)

    def resume_when_due(self, now: float, say: Callable[[str], None]) -> None:
        """Start the query that failed again, after a pause. Raises if that would not help."""
        assert self.query is not None, "no query was started"
        if self.resume_at is None:
            problem = str(self.query.exception())
            restart = self.restarts.after(problem, batch=self.watched.get().batch)
            if restart is None:
                raise PipelineFailed(f"query {LINES}: {reason(problem)}")
            say(restart.text)
            self.resume_at = now + restart.pause_seconds
        if now >= self.resume_at:
            self.resume_at = None
            self.start()

    def status(self) -> PipelineStatus:
        return PipelineStatus(
            name=self.spec.name,
            written_at=datetime.now(UTC).isoformat(timespec="seconds"),
            queries=[] if self.query is None else [self._query_status(self.query)],
            lines=dict(self.watched.get().lines),
        )

    def _query_status(self, query: "StreamingQuery") -> QueryStatus:
        last = query.lastProgress
        behind = lag(query)
        failed = query.exception()
        return query_status(
            LINES,
            None if last is None else json.loads(last.json),
            self.watched.get(),
            is_running=query.isActive,
            lag=None if behind is None else behind.total,
            problem=None if failed is None else reason(str(failed)),
        )

    def stop(self) -> None:
        if self.query is not None:
            self.query.stop()
        write_status(self.spec.home, self.status())


def start(spark: "SparkSession", spec: Spec, *, once: bool) -> Running:
    check_differences(spec)
    keep(spec)
    create_topics(spec)
    running = Running(spec, spark, once)
    running.start()
    return running


def watch(
    running: Running,
    show: Callable[[PipelineStatus], None],
    say: Callable[[str], None],
    *,
    is_over: Callable[[PipelineStatus], bool],
) -> PipelineStatus:
    """Report until the query ended or `is_over` returns true; raises if it failed for good."""
    next_look = 0.0
    has_reported = False
    while True:
        status = running.status()
        write_status(running.spec.home, status)
        show(status)
        is_at_work = False
        for query in status.queries:
            if query.problem is not None:
                running.resume_when_due(time.monotonic(), say)
            is_at_work = query.is_running or query.problem is not None
        # Many reports may be left to make when the query has ended, and each takes a while.
        is_stopped = (is_at_work or has_reported) and is_over(status)
        is_last = is_stopped or not is_at_work
        if is_last or has_reported or time.monotonic() >= next_look:
            next_look = time.monotonic() + _REPORTS_EVERY_SECONDS
            has_reported = report_on(running.spec, running.query)
        if is_stopped or (is_last and not has_reported):
            return status
        if not has_reported:
            time.sleep(_LOOK_SECONDS)


def reason(text: str) -> str:
    """The lines of Spark's report that give the reason, without its traces."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if "MILLSTREAM_" in line:
            return line[line.index("[MILLSTREAM_") :]
    return " ".join(lines[:3])[:600]
