"""A run and its query: what is started again, and what ends it. Without Spark."""

from types import SimpleNamespace

import pytest

from millstream.pipeline import run
from millstream.pipeline.restarts import RESTARTS_MAX
from millstream.pipeline.run import PipelineFailed, Running, watch
from tests.pipeline.conftest import MakeSpec

TOO_LATE = "[STREAM_FAILED] ... exception: Python worker failed to connect back. SQLSTATE: XXKST"


class FakeQuery:
    """Ended, by an error or as it should."""

    isActive = False
    lastProgress = None

    def __init__(self, problem: str | None) -> None:
        self._problem = problem

    def exception(self) -> Exception | None:
        return None if self._problem is None else RuntimeError(self._problem)


class FakeClock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=clock.monotonic, sleep=clock.sleep))
    return clock


def ended(
    make_spec: MakeSpec,
    monkeypatch: pytest.MonkeyPatch,
    problems: list[str | None],
    *,
    said: list[str],
) -> tuple[Running, list[FakeQuery]]:
    """A run whose starts have these ends."""
    started: list[FakeQuery] = []

    def start(*_: object, once: bool) -> FakeQuery:
        started.append(FakeQuery(problems[len(started)]))
        return started[-1]

    monkeypatch.setattr(run, "start_lines", start)
    monkeypatch.setattr(run, "lag", lambda query: None)
    monkeypatch.setattr(run, "report_on", lambda spec, query: False)
    spec = make_spec()
    spec.home.mkdir()
    running = Running(spec, None, True)  # type: ignore[arg-type]
    running.start()
    watch(running, lambda status: None, said.append, is_over=lambda status: False)
    return running, started


def test_a_query_whose_process_began_too_late_is_started_again_after_a_pause(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    said: list[str] = []
    running, started = ended(make_spec, monkeypatch, [TOO_LATE, TOO_LATE, None], said=said)
    assert len(started) == 3
    assert running.query is started[-1]
    # Pauses of one and two seconds, and the looks at the two queries that were started then.
    assert (len(said), clock.now) == (2, 5)


def ended_with_reports(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, *, due: int
) -> tuple[Running, list[str]]:
    """A run whose query has ended, and what it does; each look makes one of the reports."""
    done: list[str] = []

    def report_on(*_: object) -> bool:
        done.append("look")
        return done.count("look") <= due

    monkeypatch.setattr(run, "start_lines", lambda *_, once: FakeQuery(None))
    monkeypatch.setattr(run, "lag", lambda query: None)
    monkeypatch.setattr(run, "report_on", report_on)
    monkeypatch.setattr(run, "write_status", lambda *_: done.append("status"))
    running = Running(make_spec(), None, True)  # type: ignore[arg-type]
    running.start()
    return running, done


def test_status_is_written_between_reports_until_all_are_made(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    running, done = ended_with_reports(make_spec, monkeypatch, due=3)
    watch(running, lambda status: None, print, is_over=lambda status: False)
    assert done == ["status", "look"] * 4
    assert clock.now == 0


def test_whoever_asks_for_an_end_waits_for_one_report(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    running, done = ended_with_reports(make_spec, monkeypatch, due=24_427)
    watch(running, lambda status: None, print, is_over=lambda status: len(done) > 4)
    assert done == ["status", "look"] * 3


def test_the_cause_is_found_below_a_long_trace(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    problem = "Traceback\n" + "at a place\n" * 99 + TOO_LATE
    assert len(ended(make_spec, monkeypatch, [problem, None], said=[])[1]) == 2


@pytest.mark.parametrize(
    ("problems", "restarts"), [([TOO_LATE] * 99, RESTARTS_MAX), (["disk full"], 0)]
)
def test_one_that_always_does_and_any_other_failure_ends_the_run(
    make_spec: MakeSpec,
    monkeypatch: pytest.MonkeyPatch,
    clock: FakeClock,
    problems: list[str | None],
    restarts: int,
) -> None:
    said: list[str] = []
    with pytest.raises(PipelineFailed):
        ended(make_spec, monkeypatch, problems, said=said)
    assert len(said) == restarts
