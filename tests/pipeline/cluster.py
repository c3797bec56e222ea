"""A pipeline on a standalone cluster, from a wheel, whose worker is killed under way.

    python -m tests.pipeline.cluster ROUNDS [SEED]

One round: a master and two workers as processes, and a pipeline that is started by `millstream
pipeline run --master spark://...`, or by `spark-submit` if the seed is odd. While lines come in, a
worker and everything below it is killed. Topics and tables must agree with a plain reading of all
lines. Seven JVMs and a build: minutes on a busy machine. So it is a soak, not a test.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyspark
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.ingest.bad_lines import with_bad_lines
from millstream.ingest.traffic import Site
from millstream.pipeline.spec import load_spec
from millstream.pipeline.status import read_status
from tests.faults.kills import Round
from tests.pipeline.agreement import SPEC, closing_line, disagreements, send
from tests.support.node import MillstreamNode
from tests.support.spark_processes import descendants
from tests.support.spark_standalone import StandaloneCluster, running_cluster
from tests.support.wheel import install_wheel

TOPIC = "logs"
LINES = 3000
PARTITIONS = 4
_SECONDS_MAX = 300.0
_HISTORY_MS = 6 * 3600 * 1000


def pipeline_cluster_rounds(folder: Path, seeds: list[int]) -> Iterator[Round]:
    python = install_wheel(folder)
    for seed in seeds:
        yield _round(folder / f"round-{seed}", python, seed)


def _round(folder: Path, python: Path, seed: int) -> Round:
    folder.mkdir()
    file = folder / "pipeline.toml"
    chance = random.Random(seed)
    site = Site(seed=seed, start_ms=time.time_ns() // 1_000_000 - _HISTORY_MS, lines_per_second=20)
    lines = list(islice(with_bad_lines(site.lines(), seed=seed, share=0.05), LINES))
    half = LINES // 2
    with MillstreamNode(folder / "data") as node, running_cluster(folder) as cluster:
        admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(20)
        settings = 'trigger = "1 second"'
        text = SPEC.format(name="cluster", bootstrap=node.bootstrap, topic=TOPIC, settings=settings)
        file.write_text(text)
        spec = load_spec(file)
        send(node.bootstrap, TOPIC, lines[:half])
        process = _start(folder, python, cluster, is_submitted=seed % 2 == 1)
        try:
            _wait_for_batch(folder, process, 0)
            send(node.bootstrap, TOPIC, lines[half:])
            time.sleep(chance.uniform(0, 2))
            told = _kill(chance.choice(cluster.workers))
            lines.append(closing_line(lines))
            send(node.bootstrap, TOPIC, lines[-1:])
            deadline = time.monotonic() + _SECONDS_MAX
            while problems := disagreements(spec, lines):
                if time.monotonic() > deadline or process.poll() is not None:
                    problems.append(f"last words: {_log(folder)}")
                    break
                time.sleep(2)
            status = read_status(spec.home)
            if status is not None:
                problems += [f"{each.dropped} dropped" for each in status.queries if each.dropped]
        finally:
            _end(process)
    how = "spark-submit" if seed % 2 else "run --master"
    return Round(seed, len(lines), f"{how}; {told}", problems)


def _start(
    folder: Path, python: Path, cluster: StandaloneCluster, *, is_submitted: bool
) -> subprocess.Popen[bytes]:
    run = ["pipeline", "run", str(folder / "pipeline.toml"), "--master"]
    command = [str(python), "-m", "millstream", *run, cluster.url]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    if is_submitted:
        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        package = next((python.parent.parent / "lib").glob("python*")) / "site-packages/millstream"
        command = [str(submit), "--master", cluster.url, str(package / "__main__.py"), *run]
        command += ["submitted"]
        environment["PYSPARK_PYTHON"] = str(python)
    with open(folder / "run.log", "wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, env=environment, cwd=folder, start_new_session=True
        )


def _wait_for_batch(folder: Path, process: subprocess.Popen[bytes], number: int) -> None:
    path = folder / "pipeline-data" / "checkpoints" / "lines" / "commits" / str(number)
    deadline = time.monotonic() + _SECONDS_MAX
    while not path.exists():
        assert process.poll() is None, _log(folder)
        assert time.monotonic() < deadline, _log(folder)
        time.sleep(0.1)


def _kill(worker: subprocess.Popen[bytes]) -> str:
    """With its executor and the Python processes of that, as if the machine had gone."""
    below = descendants(worker.pid)
    for pid in (worker.pid, *below):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return f"SIGKILL of worker {worker.pid} and {len(below)} processes below it"


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _log(folder: Path) -> str:
    return (folder / "run.log").read_text(errors="replace")[-1500:]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 10_000
    failed = 0
    with tempfile.TemporaryDirectory(prefix="millstream-cluster-") as folder:
        for outcome in pipeline_cluster_rounds(Path(folder), list(range(seed, seed + count))):
            failed += bool(outcome.problems)
            print(outcome, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
