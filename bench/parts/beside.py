"""Serving beside other work: our node against itself, while it compacts and after a crash.

Logs are recovered before a node answers at all, so what is left to happen beside clients is
the sync of what was recovered; the rounds after a crash begin with the first answer. Other
rounds run while a topic of many keys is compacted. p99 is that of acks for one record a
request, at a fixed rate far below what the node can take. The first requests after a start are
not counted: they are about the start.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import clients
from bench.bench import Bench
from bench.brokers import Broker, Millstream
from bench.compaction import write_log
from bench.loads import ONE_RECORD, Produced, ProduceShape, fill, produce
from bench.rows import Row, at_least, at_most
from millstream.storage.layout import CLEANER_OFFSETS_FILE

PART = "beside"
_BUSY, _LARGE, _KEYED = "busy", "large", "keyed"
_REQUESTS_PER_SECOND = 2_000
_KEYS = 1_000_000
_WARM_UP_SECONDS = 0.1


@dataclass
class _Rounds:
    rates: list[float] = field(default_factory=list)
    p99_us: list[float] = field(default_factory=list)


def run(bench: Bench) -> list[Row]:
    node = Millstream(bench.path("millstream-beside"), "--dev")
    node.start()
    for name, config in ((_BUSY, {}), (_LARGE, {}), (_KEYED, {"cleanup.policy": "compact"})):
        clients.create_topic(node.bootstrap, name, partitions=1, config=config)
    try:
        quiet, crashed, compacting = _Rounds(), _Rounds(), _Rounds()
        for number in range(bench.client_rounds):
            bench.say(f"beside other work: round {number + 1} of {bench.client_rounds}")
            for figures, measure in ((quiet.rates, _rate), (quiet.p99_us, _p99_us)):
                os.sync()
                figures.append(measure(bench, node))
            for figures, measure in ((crashed.rates, _rate), (crashed.p99_us, _p99_us)):
                _crash(bench, node)
                figures.append(measure(bench, node))
            for figures, measure in ((compacting.rates, _rate), (compacting.p99_us, _p99_us)):
                figures.append(_while_compacting(bench, node, measure))
    finally:
        node.stop()
    return [
        *_rows("after a crash", crashed, quiet),
        *_rows("while a topic is compacted", compacting, quiet),
    ]


def _rows(when: str, beside: _Rounds, quiet: _Rounds) -> list[Row]:
    return [
        Row(
            PART, f"produce 1 KB, {when}", "MB/s", beside.rates, quiet.rates, at_least(0.8), "quiet"
        ),
        Row(PART, f"ack p99, {when}", "us", beside.p99_us, quiet.p99_us, at_most(1.25), "quiet"),
    ]


def _rate(bench: Bench, node: Broker) -> float:
    return produce(bench, node, _BUSY, ProduceShape()).bytes_per_second / 1e6


def _p99_us(bench: Bench, node: Broker) -> float:
    return _acks(bench, node, seconds=bench.round_seconds).replayed.p99_us


def _acks(bench: Bench, node: Broker, *, seconds: float) -> Produced:
    return produce(
        *(bench, node, _BUSY, replace(ONE_RECORD, in_flight=20_000)),
        *("--rate", str(_REQUESTS_PER_SECOND)),
        requests=int(_REQUESTS_PER_SECOND * seconds),
    )


def _crash(bench: Bench, node: Broker) -> None:
    """Kill it with unsynced records, about as many as the disk writes during a round."""
    fill(bench, node, _LARGE, ProduceShape(batch_bytes=1_000_000), bench.round_bytes_max)
    node.kill()
    node.start()
    _acks(bench, node, seconds=_WARM_UP_SECONDS)


def _while_compacting(
    bench: Bench, node: Broker, measure: Callable[[Bench, Broker], float]
) -> float:
    """One figure, while a log is compacted that takes longer than a round."""
    node.stop()
    _put_log(bench, node.folder / "data" / f"{_KEYED}-0")
    # The copy is no part of what is measured, and is on the disk before.
    os.sync()
    node.start()
    _acks(bench, node, seconds=_WARM_UP_SECONDS)
    command = [sys.executable, "-m", "millstream", "storage", "compact", _KEYED]
    with subprocess.Popen(
        [*command, "-b", node.bootstrap], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as compacting:
        # Its first remark: the work has begun.
        assert compacting.stderr is not None
        compacting.stderr.read(1)
        figure = measure(bench, node)
        is_over = compacting.poll() is not None
        compacting.communicate()
    assert compacting.returncode == 0, "the topic was not compacted"
    if is_over:
        bench.say("beside other work: the compaction ended before the round did")
    return figure


def _put_log(bench: Bench, directory: Path) -> None:
    """A log that was never compacted, in place of what the partition has."""
    written = bench.folder / "keyed-log"
    if not written.exists():
        size_bytes = 300_000_000 if bench.is_quick else 900_000_000
        bench.say("beside other work: writing a log of many keys")
        write_log(written, size_bytes=size_bytes, keys=_KEYS)
    metadata = (directory / "partition.metadata").read_bytes()
    shutil.rmtree(directory)
    shutil.copytree(written, directory)
    (directory / "partition.metadata").write_bytes(metadata)
    # Or the node remembers that the log of the last round, which was the same, is clean.
    (directory.parent / CLEANER_OFFSETS_FILE).unlink(missing_ok=True)
