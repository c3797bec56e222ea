"""`millstream pipeline`: write, check and run a pipeline file."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, date, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from millstream.cli.bootstrap import check_reachable, json_option
from millstream.cli.failure import CommandFailed
from millstream.cli.output import (
    JsonValue,
    counted,
    echo,
    print_json,
    print_outcome,
    print_table,
)
from millstream.cli.pipeline_backfill import backfill
from millstream.cli.pipeline_check import check
from millstream.cli.pipeline_file import check_functions, file_argument, load_file, master_option
from millstream.cli.pipeline_screen import Screen, make_screen, status_rows
from millstream.cli.spark_process import SPARK_LOG, check_installed, spark_session, stderr_into
from millstream.pipeline.spec import (
    Change,
    Spec,
    SpecError,
    example_python,
    example_spec,
)

if TYPE_CHECKING:
    from millstream.pipeline.rebuild import Rebuilt
    from millstream.pipeline.run import Running
    from millstream.pipeline.status import PipelineStatus


@click.group("pipeline")
def pipeline() -> None:
    """Turn topics of log lines into live windows, alerts and tables, declared in one file."""


@pipeline.command("init")
@file_argument
@click.option("--topic", "topics", multiple=True, help="An input topic; may be repeated.")
@click.option("--name", help="The prefix of the result topics.")
@click.option(
    *("-b", "--bootstrap"),
    metavar="HOST:PORT",
    envvar=["MILLSTREAM_BOOTSTRAP", "KAFKA_BOOTSTRAP_SERVERS"],
    help="The broker of the pipeline.",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@json_option
def init(
    file: Path,
    topics: tuple[str, ...],
    name: str | None,
    bootstrap: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a pipeline FILE with every setting, its default and its meaning.

    The file is TOML, or Python if its name ends with .py.
    """
    if file.exists() and not force:
        raise CommandFailed(f"{file} already exists; --force replaces it")
    changed: dict[str, object] = {}
    if topics:
        changed["input.topics"] = list(topics)
    if name:
        changed["name"] = name
    if bootstrap:
        changed["bootstrap"] = bootstrap
    example = example_python if file.suffix == ".py" else example_spec
    file.write_text(example(**changed))
    text = f"wrote {file}; next: millstream pipeline run {file}"
    print_outcome(text, {"file": str(file)}, as_json=as_json)


@pipeline.command("validate")
@file_argument
@json_option
def validate(file: Path, as_json: bool) -> None:
    """Check FILE without running anything."""
    spec = load_file(file)
    check_functions(spec)
    text = (
        f"{file} is valid: {', '.join(spec.topics)} into {spec.name}.*, windows of "
        f"{spec.window_ms / 1000:g} s, closed {spec.watermark_delay_ms / 1000:g} s after their end"
    )
    value: JsonValue = {
        "name": spec.name,
        "topics": list(spec.topics),
        "window_ms": spec.window_ms,
        "watermark_delay_ms": spec.watermark_delay_ms,
    }
    print_outcome(text, value, as_json=as_json)


@pipeline.command("diff")
@file_argument
@json_option
def diff(file: Path, as_json: bool) -> None:
    """Compare FILE with the one that the pipeline last ran with: does its state still fit?

    Exits with 1 if a change does not fit.
    """
    from millstream.pipeline.differences import differences

    found = differences(load_file(file))
    if as_json:
        print_json(
            [
                {
                    "setting": each.setting,
                    "before": str(each.before),
                    "now": str(each.now),
                    "fits": each.change is not Change.STATE,
                    "text": each.change.value,
                }
                for each in found
            ]
        )
    elif found:
        rows = [(each.setting, each.before, each.now, each.change.value) for each in found]
        print_table(["SETTING", "BEFORE", "NOW", "MEANS"], rows)
    else:
        echo("nothing changed, or the pipeline never ran", err=True)
    if any(each.change is Change.STATE for each in found):
        raise CommandFailed(f"{file} does not fit the stored state")


@pipeline.command("status")
@file_argument
@json_option
def status(file: Path, as_json: bool) -> None:
    """Show what the pipeline of FILE is doing, or did when it last ran."""
    from millstream.pipeline.status import is_unheard, read_status

    spec = load_file(file)
    found = read_status(spec.home)
    if found is None:
        raise CommandFailed(
            f"the pipeline of {file} never ran; start it: millstream pipeline run {file}"
        )
    if as_json:
        value: JsonValue = asdict(found)
        print_json(value)
        return
    is_silent = is_unheard(found, datetime.now(UTC))
    headings, rows = status_rows(found, is_unheard=is_silent)
    print_table(headings, rows)
    echo(
        f"as of {found.written_at}; lines of the run: "
        + (", ".join(f"{count:,} {kind}" for kind, count in sorted(found.lines.items())) or "none"),
        err=True,
    )
    if is_silent:
        echo(
            "a running pipeline reports its state every second; this one does not: it was killed,"
            f" or writes a long report. To resume it after a kill: millstream pipeline run {file}",
            err=True,
        )


@pipeline.command("run")
@file_argument
@click.option(
    "--once", is_flag=True, help="Process what is there now, then exit; hosts are not watched."
)
@click.option(
    "--for",
    "seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Stop this many seconds after the first finished batch.",
)
@master_option
@json_option
def run(file: Path, once: bool, seconds: float | None, master: str | None, as_json: bool) -> None:
    """Run the pipeline of FILE until Ctrl-C; when started again it resumes."""
    spec = load_file(file)
    check_reachable(spec.bootstrap)
    check_installed()
    _say_whose_clocks(spec)
    last = run_pipeline(
        spec,
        master=master,
        once=once,
        screen=make_screen(spec, None),
        is_over=_deadline(seconds),
    )
    if as_json:
        print_json(asdict(last))


def run_pipeline(
    spec: Spec,
    *,
    master: str | None,
    once: bool,
    screen: Screen,
    is_over: "Callable[[PipelineStatus], bool]",
) -> "PipelineStatus":
    """Run a pipeline until `is_over`, Ctrl-C or an error; print a summary at the end.

    Returns the last status."""
    from millstream.pipeline.run import PipelineFailed, check_differences, start, watch

    try:
        check_differences(spec)
    except SpecError as wrong:
        raise CommandFailed(str(wrong)) from None
    log_path = spec.home / SPARK_LOG
    if master is not None:
        # spark-submit has started it, and shows its log.
        echo(f"starting Spark; its log is {log_path}", err=True)
    with spark_session(spec, master=master) as session:
        running: Running | None = None
        try:
            with _asked_to_stop() as is_asked:
                running = start(session, spec, once=once)
                last = watch(
                    running,
                    screen.show,
                    screen.say,
                    is_over=lambda status: is_asked() or is_over(status),
                )
                is_interrupted = is_asked()
        except PipelineFailed as failed:
            raise CommandFailed(f"{failed}. For details see {log_path}") from None
        finally:
            screen.close()
            with stderr_into(log_path):
                if running is not None:
                    running.stop()
    _say_summary(spec, last)
    if is_interrupted:
        raise KeyboardInterrupt
    return last


@pipeline.command("rebuild")
@click.argument("output", type=click.Choice(["live", "windows", "sessions", "events", "reports"]))
@file_argument
@click.option("--from", "first_day", required=True, metavar="YYYY-MM-DD", help="The first day.")
@master_option
@json_option
def rebuild(output: str, file: Path, first_day: str, master: str | None, as_json: bool) -> None:
    """Compute results again from the tables, and replace the old ones.

    live, windows and sessions: the records of their topic. events: the table, parsed again
    from the raw lines. reports: the existing ones.
    """
    spec = load_file(file)
    try:
        day = date.fromisoformat(first_day)
    except ValueError:
        raise click.UsageError(f"--from takes YYYY-MM-DD, not {first_day!r}") from None
    check_installed()
    if output == "reports":
        from millstream.pipeline.reporting.reports import make_reports_since

        made = make_reports_since(spec, day)
        value: JsonValue = {"first_day": first_day, "written": len(made), "removed": 0}
        print_outcome(f"rewrote {counted(len(made), 'report')}", value, as_json=as_json)
        return
    check_reachable(spec.bootstrap)
    done = _rebuild(spec, output, day, master)
    removed = f", and removed {done.removed:,} obsolete ones" if done.removed else ""
    print_outcome(
        f"{output} since {done.first_day}: rewrote {counted(done.written, 'row')}{removed}",
        {"first_day": str(done.first_day), "written": done.written, "removed": done.removed},
        as_json=as_json,
    )


def _rebuild(spec: Spec, output: str, day: date, master: str | None) -> "Rebuilt":
    from millstream.pipeline.rebuild import CannotRebuild
    from millstream.pipeline.rebuild import rebuild as rebuild_output

    with spark_session(spec, master=master) as session:
        try:
            return rebuild_output(session, spec, output, day)
        except CannotRebuild as missing:
            raise CommandFailed(str(missing)) from None


def _deadline(seconds: float | None) -> "Callable[[PipelineStatus], bool]":
    """Counted from the first finished batch, not from the start of Spark."""
    first: list[float] = []

    def is_over(now: "PipelineStatus") -> bool:
        if not first and any(query.batch >= 0 for query in now.queries):
            first.append(time.monotonic())
        return seconds is not None and bool(first) and time.monotonic() - first[0] >= seconds

    return is_over


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C or SIGTERM came; a second one does not wait for the end of the batch.

    Raised in the middle of a call to Java, KeyboardInterrupt would print a traceback.
    """
    asked: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say_whose_clocks(spec: Spec) -> None:
    from confluent_kafka import KafkaException

    from millstream.pipeline.clocks import topics_that_trust_producers

    try:
        found = topics_that_trust_producers(spec)
    except KafkaException as failed:
        raise CommandFailed(f"{', '.join(spec.topics)}: {failed.args[0].str()}") from None
    if found:
        echo(
            f"note: {', '.join(found)} uses the timestamps of producers, so a wrong clock moves "
            "windows; message.timestamp.type=LogAppendTime uses the broker's",
            err=True,
        )


def _say_summary(spec: Spec, last: "PipelineStatus") -> None:
    lines = ", ".join(f"{count:,} {kind}" for kind, count in sorted(last.lines.items())) or "none"
    dropped = sum(query.dropped for query in last.queries)
    echo(
        f"pipeline {spec.name}: lines {lines}; dropped after their window was closed: {dropped:,}",
        err=True,
    )


pipeline.add_command(backfill)
pipeline.add_command(check)
