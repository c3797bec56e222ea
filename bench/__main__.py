"""The side-by-side benchmarks.

    python -m bench [--quick] [PART ...]

All parts but `cluster`, `compaction`, `pipeline` and `spark`, or the ones named. Prints a table; a
run without names also writes docs/benchmarks.md and its plots, one of those four alone, not quick,
docs/benchmarks-NAME.md.
"""

import argparse
import contextlib
import datetime
import importlib
import shutil
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from types import ModuleType

from bench import machine, plots, report
from bench.bench import Bench
from bench.rows import Row, text_table
from tests.support.jars import KAFKA_VERSION

PARTS = [
    "limits",
    "produce",
    "consume",
    "requests",
    "latency",
    "durability",
    "footprint",
    "growth",
    "recovery",
    "partitions",
    "transactions",
    "groups",
    "queues",
    "clients",
    "security",
    "beside",
]
# Not in a run of all: they are about something else than one node, and Spark takes its time.
BY_NAME_ONLY = ["cluster", "compaction", "pipeline", "spark"]
_DOCUMENTS = Path(__file__).parent.parent / "docs"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make bench", description=(__doc__ or "").partition("\n")[0]
    )
    known = PARTS + BY_NAME_ONLY
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one of: {', '.join(known)}")
    parser.add_argument("--quick", action="store_true", help="8 minutes instead of 45")
    parser.add_argument("--write", type=Path, help="write the page here, whatever the parts")
    arguments = parser.parse_args()
    unknown = [part for part in arguments.parts if part not in known]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(known)}")
    parts = arguments.parts or PARTS
    rows, failed = run(parts, is_quick=arguments.quick)
    print(text_table(rows))
    print(report.summary(rows))
    page = arguments.write or _page(arguments.parts, is_quick=arguments.quick)
    if page is not None:
        write_page(rows, page, arguments.parts, is_quick=arguments.quick)
        print(f"written: {page}")
    if failed:
        sys.exit(f"no figures of: {', '.join(failed)}; their errors are above")


def _page(parts: list[str], *, is_quick: bool) -> Path | None:
    """Where the results of these belong; no parts are all of them."""
    if not parts:
        return _DOCUMENTS / "benchmarks.md"
    if len(parts) == 1 and parts[0] in BY_NAME_ONLY and not is_quick:
        return _DOCUMENTS / f"benchmarks-{parts[0]}.md"
    return None


def run(parts: list[str], *, is_quick: bool) -> tuple[list[Row], list[str]]:
    """The rows, and the parts that failed. One of those does not cost the others their time."""
    folder = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    bench = Bench(folder, is_quick=is_quick)
    rows: list[Row] = []
    failed: list[str] = []
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(bench.stop)
        for part in parts:
            try:
                found = _module(part).run(bench)
            except Exception:
                bench.say(f"{part} failed")
                traceback.print_exc()
                failed.append(part)
                continue
            rows += found
            # A run that is stopped half-way has still said something.
            print(text_table(found), flush=True)
            print(flush=True)
    return rows, failed


def _module(part: str) -> ModuleType:
    return importlib.import_module(f"bench.parts.{part}")


def write_page(rows: list[Row], page: Path, named: list[str], *, is_quick: bool) -> None:
    parts = dict.fromkeys(row.part for row in rows)
    titles = {part: (_module(part).__doc__ or "").strip() for part in parts}
    conditions = report.Conditions(
        when=datetime.date.today().isoformat(),
        machine=machine.describe(),
        kafka_version=KAFKA_VERSION,
        java_version=_java_version(),
        rounds=_rounds(Bench(Path(), is_quick=is_quick)),
        command=_command(named, is_quick=is_quick),
    )
    drawn = plots.draw(rows, page.parent / "benchmarks")
    page.write_text(report.markdown(rows, conditions, drawn, titles))


def _command(named: list[str], *, is_quick: bool) -> str:
    words = [*(["--quick"] if is_quick else []), *named]
    return f'make bench ARGS="{" ".join(words)}"' if words else "make bench"


def _rounds(bench: Bench) -> str:
    text = f"{bench.rounds} each, {bench.client_rounds} where clients or nodes are started"
    if bench.uncounted_rounds:
        return f"{text}, after one that does not count"
    return f"{text}; the first one counts, in which Kafka's code is still being compiled"


def _java_version() -> str:
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return done.stderr.split('"')[1] if '"' in done.stderr else "unknown"


if __name__ == "__main__":
    main()
