"""A pipeline that is killed again and again, with its node now and then.

    python -m tests.pipeline.kills 20

Lines are sent meanwhile. At the end what is left is taken by one last run, and everything must
agree with a plain reading: nothing lost, nothing twice.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from millstream.ingest.bad_lines import with_bad_lines
from millstream.ingest.traffic import Site
from millstream.pipeline.spec import load_spec
from tests.pipeline.agreement import SPEC, check_agreement, last_line, send
from tests.support.node import MillstreamNode

_LINES = 6000


def run_kills(count: int, folder: Path, *, seed: int, alive_seconds: tuple[float, float]) -> str:
    """One run; returns what was seen. Raises AssertionError where numbers do not agree."""
    choose = random.Random(seed)
    with MillstreamNode(folder / "data") as node:
        node.fix_port()
        _millstream(node, "topic", "create", "logs", "-p", "2")
        file = folder / "pipeline.toml"
        file.write_text(SPEC.format(name="kills", bootstrap=node.bootstrap, topic="logs"))
        start_ms = time.time_ns() // 1_000_000 - 3 * 3600 * 1000
        site = Site(seed=seed, start_ms=start_ms, lines_per_second=20)
        lines = list(islice(with_bad_lines(site.lines(), seed=seed, share=0.05), _LINES))
        share = len(lines) // (count + 1)
        for number in range(count):
            send(node.bootstrap, "logs", lines[number * share : (number + 1) * share])
            with _running(file) as pipeline:
                _wait(pipeline, choose.uniform(*alive_seconds))
                if number % 3 == 2:
                    node.kill()
                    node.start()
                    _wait(pipeline, choose.uniform(0, 5))
        send(node.bootstrap, "logs", [*lines[count * share :], last_line(lines)])
        with _running(file, "--once") as last:
            assert last.wait() == 0, (folder / "run.log").read_text()[-2000:]
        plain = check_agreement(load_spec(file), lines)
    return f"{count} kills: {len(lines)} lines, {plain.good} good, {dict(plain.dead)}: all agree"


@contextmanager
def _running(file: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A pipeline that is killed at the end of the block, whatever it does."""
    command = [sys.executable, "-m", "millstream", "pipeline", "run", str(file)]
    with (file.parent / "run.log").open("ab") as log:
        process = subprocess.Popen(
            [*command, "--master", "local[2]", *options],
            stderr=log,
            # A group of its own: Java and Spark's workers are killed with it.
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Until it is time for the kill; a pipeline that ended by itself is an error."""
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return
    raise AssertionError(f"the pipeline ended by itself with {code}")


def _millstream(node: MillstreamNode, *arguments: str) -> None:
    command = [sys.executable, "-m", "millstream", *arguments, "-b", node.bootstrap]
    subprocess.run(command, check=True, capture_output=True)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 10_000
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        print(f"seed {seed}", flush=True)
        seen = run_kills(count, Path(folder), seed=seed, alive_seconds=(12, 40))
        print(f"{seen} ({time.monotonic() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
