"""The pipeline over millions of lines: memory of all processes, and delay, as they go on.

    python -m bench.pipeline_growth [--lines 10000000]

A separate process sends traffic at an even pace, below what the pipeline can take. Windows and
visits end while it does, so after the first steps there is as much state as ever; what grows then
would grow for ever. A line's delay is from when it was sent to the live window that counts it.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from pyspark.sql import SparkSession

from bench import clients, pipeline
from bench.brokers import Broker, Millstream, memory_bytes_of, running
from bench.pipeline import Feed, Query, Watcher
from bench.spark_source import children_of
from millstream.ingest.traffic import Site
from millstream.pipeline import run
from millstream.pipeline.spec import parse_spec

STEPS: Final = 10
# Those before still fill the state.
SETTLED_STEP: Final = 3
_LINES_PER_SECOND: Final = 25_000
# Of event time: twelve seconds for each second.
_TRAFFIC_PER_SECOND: Final = 2_000
_MARK_LINES: Final = 1_000
_SETTINGS: Final = '[windows]\nsession_gap = "1 minute"\n[parse]\nlate = "1 minute"\n'
# The first time that small files of tables are joined, the driver keeps memory for it. So that
# happens before the step which the last is compared with; in long runs after as many batches as
# usual.
_COMPACT_EVERY: Final = 50
_LINES_PER_COMPACTION: Final = 200_000
_SECONDS_MAX: Final = 120.0

# When so many lines had been sent.
Marks = list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Step:
    """The lines up to a number of them."""

    lines: int
    # By what a process is; the median of the time that they took.
    memory_mb: dict[str, float]
    delay_p50_s: float
    delay_p99_s: float

    def __str__(self) -> str:
        memory = ", ".join(f"{name} {value:,.0f} MB" for name, value in self.memory_mb.items())
        delay = f"delay p50 {self.delay_p50_s:.2f} s, p99 {self.delay_p99_s:.2f} s"
        return f"{self.lines:,} lines: {memory}; {delay}"


def send_traffic(bootstrap: str, topic: str, count: int, marks: "Queue[tuple[int, float]]") -> None:
    """Runs in its own process: making lines takes half a core."""
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4"}
    producer = Producer({**settings, "acks": "all", "queue.buffering.max.messages": 1_000_000})
    # In the past, so that no line is ahead of the clock.
    start_ms = int(time.time() * 1000) - (count // _TRAFFIC_PER_SECOND + 60) * 1000
    lines = Site(seed=1, start_ms=start_ms, lines_per_second=_TRAFFIC_PER_SECOND).lines()
    began = time.monotonic()
    for number, line in enumerate(islice(lines, count), start=1):
        producer.produce(topic, line.data, key=line.source, timestamp=line.time_ms)
        if number % _MARK_LINES == 0 or number == count:
            producer.poll(0)
            marks.put((number, time.time()))
            ahead = number / _LINES_PER_SECOND - (time.monotonic() - began)
            time.sleep(max(0.0, ahead))
    producer.flush(60)


def run_long(
    spark: SparkSession,
    feed: Feed,
    folder: Path,
    node: Broker,
    count: int,
    say: Callable[[str], None],
) -> list[Step]:
    """What is found at every tenth of the lines."""
    topic = f"long-{time.time_ns()}"
    clients.create_topic(feed.bootstrap, topic, partitions=2, config={})
    compact_every = min(_COMPACT_EVERY, max(1, count // _LINES_PER_COMPACTION))
    text = (
        f'name = "{topic}"\nhome = "{topic}"\nbootstrap = "{feed.bootstrap}"\n'
        f'trigger = "1 second"\nstate_partitions = 2\n[input]\ntopics = ["{topic}"]\n{_SETTINGS}'
        f"[warehouse]\ncompact_every = {compact_every}\n"
    )
    spec = parse_spec(text, folder=folder)
    run.create_topics(spec)
    [query] = feed.start(spark, spec)
    watcher = Watcher(spec)
    watcher.start()
    _wait_for_start(query)
    context = multiprocessing.get_context("spawn")
    queue: Queue[tuple[int, float]] = context.Queue()
    sender = context.Process(target=send_traffic, args=(feed.bootstrap, topic, count, queue))
    sender.start()
    marks: Marks = []
    steps: list[Step] = []
    try:
        for number in range(1, STEPS + 1):
            lines = count * number // STEPS
            memory_mb = _wait_for(watcher, marks, queue, lines, lambda: _memory_mb(node))
            assert query.running.isActive, query.running.exception()
            since = count * (number - 1) // STEPS
            step = _step(marks, watcher, since, lines, middle_of(memory_mb))
            say(str(step))
            steps.append(step)
        sender.join(_SECONDS_MAX)
    finally:
        sender.kill()
        watcher.stop()
        query.running.stop()
    return steps


def _wait_for_start(query: Query) -> None:
    """Until its first batch is done, which has no lines."""
    deadline = time.monotonic() + _SECONDS_MAX
    while query.running.lastProgress is None:
        assert query.running.isActive, query.running.exception()
        assert time.monotonic() < deadline, "no batch"
        time.sleep(0.1)


def _wait_for(
    watcher: Watcher,
    marks: Marks,
    queue: "Queue[tuple[int, float]]",
    lines: int,
    memory_mb: Callable[[], dict[str, float]],
) -> list[dict[str, float]]:
    """Until so many lines are in live windows; the memory meanwhile, second by second.

    Something must be seen now and then.
    """
    seen_before, deadline = -1, 0.0
    found = [memory_mb()]
    looked_at = time.monotonic()
    while True:
        if time.monotonic() - looked_at >= 1:
            looked_at = time.monotonic()
            found.append(memory_mb())
        while not queue.empty():
            marks.append(queue.get())
        seen = watcher.seen[-1][1] if watcher.seen else 0
        if seen >= lines:
            return found
        if seen > seen_before:
            seen_before, deadline = seen, time.monotonic() + _SECONDS_MAX
        assert time.monotonic() < deadline, f"{seen} of {lines} lines seen"
        time.sleep(0.2)


def middle_of(memory_mb: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median for each process: joining the files of tables takes memory for a moment."""
    return {name: statistics.median(each[name] for each in memory_mb) for name in memory_mb[0]}


def _step(
    marks: Marks, watcher: Watcher, since: int, lines: int, memory_mb: dict[str, float]
) -> Step:
    delays = delays_of([mark for mark in marks if since < mark[0] <= lines], list(watcher.seen))
    percentiles = statistics.quantiles(delays, n=100)
    return Step(lines, memory_mb, percentiles[49], percentiles[98])


def delays_of(marks: Marks, seen: list[tuple[float, int]]) -> list[float]:
    """Seconds from each mark to the first count that includes it; `seen` is in milliseconds."""
    found: list[float] = []
    counts = iter(seen)
    at_ms, count = next(counts)
    for lines, sent in marks:
        while count < lines:
            at_ms, count = next(counts)
        found.append(at_ms / 1000 - sent)
    return found


def _memory_mb(node: Broker) -> dict[str, float]:
    """Of this process, which is the driver, of its JVM, of all workers, and of the node."""
    found = {"driver": 0.0, "JVM": 0.0, "workers": 0.0, "node": node.memory_bytes() / 1e6}
    me = multiprocessing.current_process().pid or 0
    found["driver"] = memory_bytes_of(me) / 1e6
    for pid in children_of(me):
        # Not Kafka's, if that runs, too.
        if "org.apache.spark.deploy.SparkSubmit" not in _command(pid):
            continue
        found["JVM"] += memory_bytes_of(pid) / 1e6
        found["workers"] += sum(map(_memory_bytes, _descendants(pid))) / 1e6
    return found


def _memory_bytes(pid: int) -> int:
    try:
        return memory_bytes_of(pid)
    except FileNotFoundError:
        # It has ended, as idle workers do.
        return 0


def _descendants(pid: int) -> list[int]:
    return [found for child in children_of(pid) for found in (child, *_descendants(child))]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except FileNotFoundError:
        return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=10_000_000)
    lines = parser.parse_args().lines
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as name:
        folder = Path(name)
        node = Millstream(folder / "node", "--dev")
        with running(node):
            source = (pipeline.read_by_source, pipeline.report_by_source)
            feed = Feed("Millstream", node.bootstrap, *source)
            spark = pipeline.start_session(folder, "local[2]")
            run_long(spark, feed, folder, node, lines, lambda text: print(text, flush=True))
            spark.stop()


if __name__ == "__main__":
    main()
