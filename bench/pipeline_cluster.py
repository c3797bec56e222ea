"""Lines per second of the pipeline on a standalone cluster of Spark, with one and with two workers.

    python -m bench.pipeline_cluster [--rounds 3] [--lines 1000000]

A worker has one core. All results and tables are made, from lines that lie in a topic, in batches
of equal size, of which the first does not count: Java compiles most of the code in it. Rounds with
one and with two workers alternate. Node, driver, master and workers share the cores of one
machine, so a second worker shows what the cluster adds and costs, not what a second machine would.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from bench import clients, pipeline
from bench.brokers import Millstream
from bench.brokers import running as node_running
from bench.pipeline import Feed
from millstream.pipeline import run
from millstream.pipeline.spark_session import open_session
from millstream.pipeline.spec import parse_spec
from tests.support.spark_standalone import running_cluster

_BATCHES: Final = 5
_TOPIC: Final = "logs"
_SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": pipeline.HEAP,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.executor.cores": "1",
    # No batch begins before every worker is there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
}


def measure(folder: Path, bootstrap: str, lines: int, workers: int) -> float:
    """Lines per second of one run, of all batches but the first."""
    folder.mkdir()
    name = f"cluster-{folder.name}"
    text = (
        f'name = "{name}"\nbootstrap = "{bootstrap}"\n'
        f'state_partitions = {pipeline.STATE_PARTITIONS}\n[input]\ntopics = ["{_TOPIC}"]\n'
        f"records_per_batch_max = {lines // _BATCHES}\n"
    )
    spec = parse_spec(text, folder=folder)
    spec.home.mkdir(parents=True)
    with running_cluster(folder, workers=workers) as cluster:
        spark = open_session(spec, master=cluster.url, settings=_SETTINGS)
        try:
            running = run.start(spark, spec, once=True)
            status = run.watch(running, lambda status: None, print, is_over=lambda status: False)
            assert sum(status.lines.values()) == lines, status.lines
            assert running.query is not None
            reports = pipeline.reports_of([running.query])
        finally:
            spark.stop()
    busy = [int(each["batchDuration"]) for each in reports][:_BATCHES]
    return 1000 * lines / _BATCHES * (_BATCHES - 1) / sum(busy[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines", type=int, default=1_000_000)
    arguments = parser.parse_args()
    found: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as name:
        folder = Path(name)
        node = Millstream(folder / "node", "--dev")
        with node_running(node):
            feed = Feed(
                "Millstream", node.bootstrap, pipeline.read_by_source, pipeline.report_by_source
            )
            clients.create_topic(node.bootstrap, _TOPIC, partitions=2, config={})
            pipeline.send_lines(feed, _TOPIC, pipeline.make_lines(arguments.lines))
            for number in range(arguments.rounds):
                for workers, rates in found.items():
                    place = folder / f"{number}-{workers}-{time.time_ns()}"
                    rates.append(measure(place, node.bootstrap, arguments.lines, workers))
                    load = os.getloadavg()[0]
                    print(
                        f"round {number + 1}, {workers} worker(s): {rates[-1]:,.0f} lines/s "
                        f"(load of the machine {load:.1f})",
                        flush=True,
                    )
    for workers, rates in found.items():
        spread = f"{min(rates):,.0f}-{max(rates):,.0f}"
        print(f"{workers} worker(s): {statistics.median(rates):,.0f} lines/s ({spread})")


if __name__ == "__main__":
    main()
