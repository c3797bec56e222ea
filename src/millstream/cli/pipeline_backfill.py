"""`millstream pipeline backfill`: lines of any age, in a separate run."""

from functools import partial
from pathlib import Path

import click

from millstream.cli.bootstrap import check_reachable, json_option
from millstream.cli.failure import CommandFailed
from millstream.cli.output import echo, print_outcome
from millstream.cli.pipeline_file import file_argument, load_file, master_option
from millstream.cli.spark_process import SPARK_LOG, check_installed, spark_session
from millstream.pipeline.spec import SpecError


@click.command("backfill")
@file_argument
@master_option
@json_option
def backfill(file: Path, master: str | None, as_json: bool) -> None:
    """Process lines of any age, once: tables, closed windows and visits.

    For historic files, with a separate pipeline FILE, name and home. When called again it
    processes what was added since, and rewrites all results.
    """
    spec = load_file(file)
    check_reachable(spec.bootstrap)
    check_installed()
    from millstream.pipeline.backfill import backfill as take_all
    from millstream.pipeline.backfill import check_backfill
    from millstream.pipeline.run import PipelineFailed

    try:
        check_backfill(spec)
    except SpecError as wrong:
        raise CommandFailed(f"{file}: {wrong}") from None
    with spark_session(spec, master=master) as session:
        try:
            done = take_all(session, spec, partial(echo, err=True))
        except PipelineFailed as failed:
            raise CommandFailed(f"{failed}. For details see {spec.home / SPARK_LOG}") from None
    lines = ", ".join(f"{count:,} {kind}" for kind, count in sorted(done.lines.items()))
    results = ", ".join(f"{count:,} in {topic}" for topic, count in done.results.items())
    print_outcome(
        f"new lines: {lines or 'none'}; results: {results}",
        {"lines": dict(done.lines), "results": dict(done.results)},
        as_json=as_json,
    )
