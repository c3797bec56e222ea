"""`millstream pipeline` without Spark: the file, its checks, and what it is compared with."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from millstream.cli import pipeline as command
from millstream.cli.failure import CommandFailed
from millstream.cli.pipeline import _asked_to_stop, pipeline
from millstream.cli.spark_process import in_plain_words
from millstream.pipeline.differences import keep
from millstream.pipeline.progress import Progress
from millstream.pipeline.spec import Spec, load_spec
from millstream.pipeline.status import PipelineStatus, query_status, write_status


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(pipeline, list(arguments))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.toml"
    assert call("init", str(path), "--topic", "a", "--topic", "b", "--name", "shop").exit_code == 0
    return path


def test_init_writes_a_file_that_is_valid_and_never_over_another(file: Path) -> None:
    spec = load_spec(file)
    assert (spec.topics, spec.name) == (("a", "b"), "shop")
    assert "shop.*" in call("validate", str(file)).stderr
    again = call("init", str(file))
    assert isinstance(again.exception, CommandFailed)
    assert call("init", str(file), "--force").exit_code == 0
    assert load_spec(file).topics == ("logs",)


def test_a_wrong_setting_is_named_with_its_file(file: Path) -> None:
    file.write_text("trigger = 'soon'")
    failed = call("validate", str(file)).exception
    assert isinstance(failed, CommandFailed)
    assert str(failed).startswith(f"{file}: trigger:")
    file.unlink()
    text = f"{file}: No such file or directory. `millstream pipeline init` writes one"
    assert str(call("validate", str(file)).exception) == text


def test_a_parser_function_that_cannot_be_loaded_is_found_before_the_run(file: Path) -> None:
    file.write_text("[[parse.sources]]\nmatch = '*'\nfunction = 'no_such_module:parse'")
    failed = call("validate", str(file)).exception
    assert isinstance(failed, CommandFailed)
    assert "no_such_module" in str(failed)


def test_a_parser_function_may_lie_beside_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "before")
    (file.parent / "lies_beside_it.py").write_text("def parse(lines):\n    return lines\n")
    file.write_text("[[parse.sources]]\nmatch = '*'\nfunction = 'lies_beside_it:parse'")
    assert call("validate", str(file)).exit_code == 0
    assert os.environ["PYTHONPATH"] == f"{file.parent}{os.pathsep}before"


def test_a_file_may_be_python(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.py"
    assert call("init", str(path), "--topic", "a").exit_code == 0
    assert call("validate", str(path)).exit_code == 0
    assert load_spec(path).topics == ("a",)


def test_diff_fails_for_a_change_that_the_state_cannot_follow(file: Path) -> None:
    spec = load_spec(file)
    keep(replace(spec, trigger_ms=1))
    done = call("diff", str(file), "--json")
    assert done.exit_code == 0
    assert [each["setting"] for each in json.loads(done.stdout)] == ["trigger"]
    # Durations are shown with their unit.
    assert json.loads(done.stdout)[0]["now"] == "5 s"
    keep(replace(spec, state_partitions=200))
    done = call("diff", str(file))
    assert isinstance(done.exception, CommandFailed)
    assert "state_partitions" in done.stdout


def test_status_shows_the_last_state_of_every_query(file: Path) -> None:
    never = call("status", str(file)).exception
    assert isinstance(never, CommandFailed)
    spec = load_spec(file)
    spec.home.mkdir()
    query = query_status("lines", None, Progress(), is_running=False, lag=None, problem=None)
    write_status(spec.home, PipelineStatus("shop", "today", [query], {"good": 7, "late": 1}))
    done = call("status", str(file))
    assert done.stdout.splitlines()[1].split()[:2] == ["lines", "ended"]
    assert "7 good, 1 late" in done.stderr
    assert json.loads(call("status", str(file), "--json").stdout)["lines"] == {
        "good": 7,
        "late": 1,
    }


def test_status_does_not_call_a_killed_run_running(file: Path) -> None:
    spec = load_spec(file)
    spec.home.mkdir()
    query = query_status("lines", None, Progress(), is_running=True, lag=None, problem=None)
    for written_at, state in (("2026-01-01T00:00:00+00:00", "unheard"), (utc_now(), "running")):
        write_status(spec.home, PipelineStatus("shop", written_at, [query]))
        done = call("status", str(file))
        assert done.stdout.splitlines()[1].split()[:2] == ["lines", state]
        assert ("was killed" in done.stderr) == (state == "unheard")


def test_rebuild_tells_what_it_did_and_takes_the_session_of_spark_submit(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    pytest.importorskip("deltalake")
    from millstream.pipeline import rebuild as rebuilding

    masters = []

    @contextmanager
    def session(spec: Spec, *, master: str | None) -> Iterator[None]:
        masters.append(master)
        yield None

    def done(spark: None, spec: Spec, output: str, day: date) -> rebuilding.Rebuilt:
        return rebuilding.Rebuilt(day, 12, 3)

    monkeypatch.setattr(command, "spark_session", session)
    monkeypatch.setattr(command, "check_reachable", lambda bootstrap: None)
    monkeypatch.setattr(rebuilding, "rebuild", done)
    since = ("rebuild", "windows", str(file), "--from", "2026-09-21")
    text = "windows since 2026-09-21: rewrote 12 rows, and removed 3 obsolete ones\n"
    assert call(*since).stderr == text
    assert call(*since, "--master", "submitted").stderr == text
    assert masters == ["local[*]", None]
    assert call("rebuild", "windows", str(file), "--from", "yesterday").exit_code == 2
    assert call("rebuild", "alerts", str(file), "--from", "2026-09-21").exit_code == 2


def test_a_failure_of_spark_is_told_in_a_line_and_not_in_pages(file: Path) -> None:
    pytest.importorskip("pyspark")
    from pyspark.errors import PySparkException

    trace = (
        "boom\n  File 'x'\nmillstream: [MILLSTREAM_UNKNOWN_TOPIC] Topic t does not exist\n at Java"
    )
    with pytest.raises(CommandFailed) as failed, in_plain_words(Path("spark.log")):
        raise PySparkException(trace)
    assert (
        str(failed.value)
        == "[MILLSTREAM_UNKNOWN_TOPIC] Topic t does not exist. For details see spark.log"
    )


def test_java_that_is_gone_cannot_be_asked_what_was_wrong() -> None:
    pytest.importorskip("pyspark")
    from py4j.protocol import Py4JError, Py4JNetworkError

    class OfJava(Py4JError):
        def __str__(self) -> str:
            raise ConnectionRefusedError

    for failure in (OfJava(), Py4JNetworkError("empty"), ConnectionRefusedError()):
        with pytest.raises(CommandFailed) as failed, in_plain_words(Path("spark.log")):
            raise failure
        assert str(failed.value) == "Spark's Java process is gone. For details see spark.log"


def test_the_first_signal_asks_and_the_second_interrupts() -> None:
    # Whoever starts the tests in the background may have it ignored.
    before = signal.getsignal(signal.SIGINT)
    with _asked_to_stop() as is_asked:
        assert not is_asked()
        signal.raise_signal(signal.SIGTERM)
        assert is_asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
