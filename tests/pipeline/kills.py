"""One pipeline that is killed again and again: its driver, a Python worker, its node, or all.

    python -m tests.pipeline.kills 20 [SEED]

One round: at least 2,000 lines are sent, some of them bad; at a random moment something is
killed with SIGKILL, in whatever batches are under way. A pipeline that ended is started again
on what it kept. When the round's windows are closed, topics and tables must agree with a
plain reading of every line since the first round.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.ingest.bad_lines import with_bad_lines
from millstream.ingest.traffic import Site, TrafficLine
from millstream.pipeline.spec import Spec, load_spec
from millstream.pipeline.status import read_status
from tests.faults.kills import Round
from tests.pipeline.agreement import CLOSING_MS, SPEC, closing_line, disagreements
from tests.support.node import MillstreamNode
from tests.support.spark_processes import kill_a_worker

FAULTS = ("driver", "worker", "node", "all")
TOPIC = "logs"
LINES = 2500
PARTITIONS = 2
_LINES_PER_SECOND = 20
# Of event time, from round to round: the lines, what closes their windows, and some more.
_ROUND_MS = LINES * 1000 // _LINES_PER_SECOND + 2 * CLOSING_MS
_SENDING_SECONDS = 6.0
_AGREEMENT_SECONDS_MAX = 240.0
_HISTORY_MS = 5 * 24 * 3600 * 1000
# It lives for a minute or two: compiling its code well would take longer than running it.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"


class Pipeline:
    """`millstream pipeline run` as a process, with Java and Spark's workers below it."""

    def __init__(self, file: Path) -> None:
        self.spec: Spec = load_spec(file)
        self.starts = 0
        self._file = file
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start_if_ended(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        # What it left behind, if anything, goes with it.
        self.kill()
        self.starts += 1
        command = [sys.executable, "-m", "millstream", "pipeline", "run", str(self._file)]
        with (self._file.parent / "run.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--master", "local[2]"],
                stdout=log,
                stderr=log,
                env={**os.environ, "JDK_JAVA_OPTIONS": _JAVA_OPTIONS},
                # A group of its own: Java and Spark's workers are killed with it.
                start_new_session=True,
            )

    def kill(self) -> None:
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._process = None

    def open_batches(self) -> str:
        """Batches that are planned and not finished, of each query."""
        found = []
        for folder in sorted((self.spec.home / "checkpoints").glob("*")):
            planned, finished = _last_batch(folder / "offsets"), _last_batch(folder / "commits")
            if planned > finished:
                found.append(f"{folder.name} {planned}")
        return ", ".join(found) or "none"

    def log_tail(self) -> str:
        return (self._file.parent / "run.log").read_text(errors="replace")[-1500:]


def _last_batch(folder: Path) -> int:
    numbers = [int(each.name) for each in folder.glob("*") if each.name.isdigit()]
    return max(numbers, default=-1)


class Sender(threading.Thread):
    """Sends lines at an even pace, and lives through a node that is away for a moment."""

    def __init__(self, bootstrap: str, lines: list[TrafficLine]) -> None:
        super().__init__()
        self.acknowledged = 0
        self._lines = lines
        # Idempotent: what is sent again after a kill of the node is there once.
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer({**settings, "log_level": 0})

    def run(self) -> None:
        pause = _SENDING_SECONDS / len(self._lines) * 50
        for number, line in enumerate(self._lines):
            self._producer.produce(
                TOPIC, line.data, key=line.source, timestamp=line.time_ms, callback=self._told
            )
            if number % 50 == 49:
                self._producer.poll(pause)
                time.sleep(pause)
        self._producer.flush(60)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        self.acknowledged += error is None


def pipeline_kill_rounds(folder: Path, seeds: list[int]) -> Iterator[Round]:
    """Rounds on one pipeline, so that every round meets the state all those before it left."""
    with MillstreamNode(folder / "data") as node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(20)
        file = folder / "pipeline.toml"
        text = SPEC.format(
            name="kills", bootstrap=node.bootstrap, topic=TOPIC, settings='trigger = "1 second"'
        )
        file.write_text(text)
        lines: list[TrafficLine] = []
        start_ms = time.time_ns() // 1_000_000 - _HISTORY_MS
        with Pipeline(file) as pipeline:
            for number, seed in enumerate(seeds):
                yield _round(node, pipeline, seed, lines, start_ms + number * _ROUND_MS)


def _round(
    node: MillstreamNode, pipeline: Pipeline, seed: int, lines: list[TrafficLine], start_ms: int
) -> Round:
    """`lines` are those of the rounds before, and get this round's."""
    chance = random.Random(seed)
    site = Site(seed=seed, start_ms=start_ms, lines_per_second=_LINES_PER_SECOND)
    new = list(islice(with_bad_lines(site.lines(), seed=seed, share=0.05), LINES))
    sender = Sender(node.bootstrap, new)
    pipeline.start_if_ended()
    sender.start()
    time.sleep(chance.uniform(0, _SENDING_SECONDS))
    _wait_for_open_batches(pipeline)
    time.sleep(chance.uniform(0, 1))
    told = _hit(FAULTS[seed % len(FAULTS)], node, pipeline, chance)
    sender.join()
    lines += new
    # Only after the others: the watermark must not pass lines that are still to come.
    closing = Sender(node.bootstrap, [closing_line(new)])
    closing.start()
    closing.join()
    lines.append(closing_line(new))
    problems = _wait_for_agreement(pipeline, lines)
    acknowledged = sender.acknowledged + closing.acknowledged
    if acknowledged < len(new) + 1:
        problems.append(f"{acknowledged} of {len(new) + 1} lines were acknowledged")
    return Round(seed, acknowledged, f"{told}; start {pipeline.starts}", problems)


def _wait_for_open_batches(pipeline: Pipeline) -> None:
    """A pipeline that is still starting has nothing to lose."""
    deadline = time.monotonic() + _AGREEMENT_SECONDS_MAX
    while pipeline.open_batches() == "none":
        assert time.monotonic() < deadline, f"no batch begins: {pipeline.log_tail()}"
        pipeline.start_if_ended()
        time.sleep(0.05)


def _hit(fault: str, node: MillstreamNode, pipeline: Pipeline, chance: random.Random) -> str:
    """What was killed, and in the middle of what."""
    if fault == "node":
        open_batches, pid = pipeline.open_batches(), node.pid
        _kill_node(node, chance)
        return f"SIGKILL of node {pid}, open batches: {open_batches}"
    if fault == "all":
        pipeline.start_if_ended()
        open_batches = pipeline.open_batches()
        # Its workers are killed with the driver.
        pipeline.kill()
        _kill_node(node, chance)
        return f"SIGKILL of driver, workers and node, open batches: {open_batches}"
    if fault == "worker":
        while True:
            pipeline.start_if_ended()
            open_batches = pipeline.open_batches()
            pid_or_none = kill_a_worker(pipeline.pid, chance)
            if pid_or_none is not None:
                return f"SIGKILL of worker {pid_or_none}, open batches: {open_batches}"
            # Spark has not started one yet.
            time.sleep(0.2)
    pipeline.start_if_ended()
    open_batches, pid = pipeline.open_batches(), pipeline.pid
    pipeline.kill()
    return f"SIGKILL of driver {pid}, open batches: {open_batches}"


def _kill_node(node: MillstreamNode, chance: random.Random) -> None:
    node.kill()
    time.sleep(chance.random())
    node.start()


def _wait_for_agreement(pipeline: Pipeline, lines: list[TrafficLine]) -> list[str]:
    """Until all is there and right; what was counted twice or lost stays wrong until the end."""
    deadline = time.monotonic() + _AGREEMENT_SECONDS_MAX
    while True:
        pipeline.start_if_ended()
        problems = _problems(pipeline.spec, lines)
        if not problems:
            return []
        if time.monotonic() > deadline:
            return [*problems, f"last words: {pipeline.log_tail()}"]
        time.sleep(2)


def _problems(spec: Spec, lines: list[TrafficLine]) -> list[str]:
    status = read_status(spec.home)
    tables = (spec.home / "tables").glob("*/_delta_log")
    if status is None or len(list(tables)) < 2:
        return ["it has not begun"]
    dropped = [each.name for each in status.queries if each.dropped]
    return [f"{name}: lines dropped by the watermark" for name in dropped] + disagreements(
        spec, lines
    )


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 10_000
    failed = 0
    with tempfile.TemporaryDirectory(prefix="millstream-kills-") as folder:
        for outcome in pipeline_kill_rounds(Path(folder), list(range(seed, seed + count))):
            failed += bool(outcome.problems)
            print(outcome, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
