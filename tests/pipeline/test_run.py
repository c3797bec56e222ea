"""A run and its query: what is started again, and what ends it. Without Spark."""

import pytest

from millstream.pipeline import run
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


def ended(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, problems: list[str | None]
) -> tuple[Running, list[FakeQuery]]:
    """A run whose starts have these ends."""
    started: list[FakeQuery] = []

    def start(*_: object, once: bool) -> FakeQuery:
        started.append(FakeQuery(problems[len(started)]))
        return started[-1]

    monkeypatch.setattr(run, "start_lines", start)
    monkeypatch.setattr(run, "lag", lambda query: None)
    monkeypatch.setattr(run, "report_on", lambda spec, query: None)
    monkeypatch.setattr(run, "_LOOK_SECONDS", 0)
    spec = make_spec()
    spec.home.mkdir()
    running = Running(spec, None, True)  # type: ignore[arg-type]
    running.start()
    watch(running, lambda status: None, is_over=lambda status: False)
    return running, started


def test_a_query_whose_process_began_too_late_is_started_again(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, started = ended(make_spec, monkeypatch, [TOO_LATE, TOO_LATE, None])
    assert len(started) == 3
    assert running.query is started[-1]


@pytest.mark.parametrize("problems", [[TOO_LATE] * 9, ["disk full"]])
def test_one_that_always_does_and_any_other_failure_ends_the_run(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, problems: list[str | None]
) -> None:
    with pytest.raises(PipelineFailed):
        ended(make_spec, monkeypatch, problems)
