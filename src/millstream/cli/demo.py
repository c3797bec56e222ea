"""`millstream demo`: an invented web shop's logs through the pipeline, on a running node."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from millstream.cli.bootstrap import bootstrap_option, connect_admin, json_option, wait_for
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.output import echo, print_outcome
from millstream.cli.pipeline import run_pipeline
from millstream.cli.pipeline_results import Results
from millstream.cli.pipeline_screen import make_screen
from millstream.cli.spark_process import check_installed
from millstream.pipeline.outputs import OUTPUTS
from millstream.pipeline.spec import Spec, example_spec, load_spec

if TYPE_CHECKING:
    from millstream.pipeline.status import PipelineStatus

_FIRST_WINDOW_SECONDS_MAX: Final = 300.0
_TOPIC: Final = "logs"
# A demonstration should show windows that close within the minute.
_SETTINGS: Final = {
    "name": "demo",
    "home": ".",
    "trigger": "3 seconds",
    "input.topics": [_TOPIC],
    "parse.ahead": "10 seconds",
    "parse.late": "20 seconds",
    "parse.skew": "10 seconds",
    "windows.length": "10 seconds",
    "windows.session_gap": "1 minute",
    "windows.silent_after": "15 seconds",
}


@click.command("demo")
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    default="./demo",
    show_default=True,
    help="Folder for the pipeline's file, checkpoints, tables and reports.",
)
@click.option("--rate", default=200.0, show_default=True, help="Approximate lines per second.")
@click.option(
    "--for",
    "seconds",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Stop this many seconds after the first window.",
)
@json_option
@bootstrap_option
def demo(home: Path, rate: float, seconds: float | None, as_json: bool, bootstrap: str) -> None:
    """Generate traffic, run the pipeline on it, and show windows and alerts, until Ctrl-C."""
    check_installed()
    create_input(bootstrap)
    spec = prepare_file(home, bootstrap)
    results = Results(spec)
    topics = ", ".join(output.topic(spec) for output in OUTPUTS)
    echo(
        f"traffic goes to the topic {_TOPIC}; results to {topics}; tables and reports to {home}",
        err=True,
    )
    with traffic(bootstrap, rate) as load:
        run_pipeline(
            spec,
            master="local[*]",
            once=False,
            screen=make_screen(spec, results),
            is_over=first_window_deadline(results, seconds, load_ended=load.poll),
        )
    print_outcome(
        f"{results.window_count} windows, {results.alert_count} alerts. Again: make run, or "
        f"millstream consume {spec.name}.windows -o beginning",
        {"windows": results.window_count, "alerts": results.alert_count},
        as_json=as_json,
    )


def create_input(bootstrap: str) -> None:
    from confluent_kafka.admin import NewTopic

    admin = connect_admin(bootstrap)
    if _TOPIC not in admin.list_topics(timeout=10).topics:
        # The node's own clock: event times are compared with it, and a producer's could be wrong.
        configs = {"message.timestamp.type": "LogAppendTime"}
        [answer] = admin.create_topics([NewTopic(_TOPIC, 2, config=configs)]).values()
        wait_for(answer, f"topic {_TOPIC}")


def prepare_file(home: Path, bootstrap: str) -> Spec:
    """The pipeline file of the demonstration, written the first time and then kept."""
    home.mkdir(parents=True, exist_ok=True)
    path = home / "pipeline.toml"
    if not path.exists():
        path.write_text(example_spec(**{**_SETTINGS, "bootstrap": bootstrap}))
    return load_spec(path)


@contextmanager
def traffic(bootstrap: str, rate: float) -> "Iterator[subprocess.Popen[bytes]]":
    # Another seed each time: the same visitors at another time would look the same.
    seed = str(time.time_ns() % 1_000_000)
    command = ["loadgen", "--topic", _TOPIC, "--rate", str(rate), "--seed", seed, "--bad", "0.002"]
    process = subprocess.Popen(
        [sys.executable, "-m", "millstream", *command, "-q", "-b", bootstrap],
        # Ctrl-C is for us; the child ends when we do.
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def first_window_deadline(
    results: Results, seconds: float | None, *, load_ended: Callable[[], int | None]
) -> "Callable[[PipelineStatus], bool]":
    """`seconds` count from the first window; without one in time the run has failed."""
    started = time.monotonic()
    first: list[float] = []

    def is_over(status: "PipelineStatus") -> bool:
        now = time.monotonic()
        if not first and results.window_count:
            first.append(now)
            echo(f"the first window came after {now - started:.0f} s", err=True)
        if (code := load_ended()) is not None:
            raise CommandFailed(f"the traffic generator exited with code {code}: see above")
        if not first and now - started > _FIRST_WINDOW_SECONDS_MAX:
            raise CommandFailed(
                f"no window within {_FIRST_WINDOW_SECONDS_MAX:.0f} s: {_why_no_window(status)}",
                exit_code=ExitCode.TIMEOUT,
            )
        return bool(first) and seconds is not None and now - first[0] >= seconds

    return is_over


def _why_no_window(status: "PipelineStatus") -> str:
    if not status.queries:
        return "the query was not started"
    [live] = status.queries
    if live.batch < 0:
        return "Spark has not finished the first batch; is the machine busy?"
    if not live.rows:
        return f"no line arrived in {live.batch + 1} batches"
    lines = ", ".join(f"{count:,} {kind}" for kind, count in sorted(status.lines.items()))
    return f"{live.rows:,} lines were read ({lines or 'none stored yet'}), and none counted"
