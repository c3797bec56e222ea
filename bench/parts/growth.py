"""Cost must grow as it should: our node against itself, small against large, idle against busy."""

import os
from dataclasses import replace

from bench.bench import Bench
from bench.brokers import Broker
from bench.loads import ONE_RECORD, ProduceShape, fill, produce
from bench.rows import Row, at_least, at_most

PART = "growth"
_SHARES = (0.1, 0.3, 0.6)


def run(bench: Bench) -> list[Row]:
    return [*_log_size(bench), *_load(bench)]


def _log_size(bench: Bench) -> list[Row]:
    """Throughput and memory with an empty log and with a large one, in turn.

    In turn, because so much written leaves the machine itself slower for every file.
    """
    size_bytes = 2_000_000_000 if bench.is_quick else 8_000_000_000
    node = bench.ours
    with bench.topic(node) as empty:
        produce(bench, node, empty, ProduceShape())
        before = node.memory_bytes() / 1e6
    with bench.topic(node) as topic:
        bench.say(f"growth: filling {size_bytes / 1e9:g} GB")
        fill(bench, node, topic, ProduceShape(batch_bytes=1_000_000), size_bytes)
        small: list[float] = []
        large: list[float] = []
        for _ in range(bench.rounds):
            with bench.topic(node) as empty:
                small.append(_rate(bench, node, empty))
            large.append(_rate(bench, node, topic))
        after = node.memory_bytes() / 1e6
    name = f"with {size_bytes / 1e9:g} GB in the log"
    return [
        Row(PART, f"produce 1 KB {name}", "MB/s", large, small, at_least(0.9), "empty"),
        Row(PART, f"memory {name}", "MB", [after], [before], at_most(1.1), "empty"),
    ]


def _rate(bench: Bench, node: Broker, topic: str) -> float:
    # What was written before is the disk's business for a while, and no size of a log.
    os.sync()
    return produce(bench, node, topic, ProduceShape()).bytes_per_second / 1e6


def _load(bench: Bench) -> list[Row]:
    """p99 of the ack at shares of the rate that the node can take at most."""
    node = bench.ours
    with bench.topic(node) as topic:
        pipelined = replace(ONE_RECORD, in_flight=64)
        most = produce(bench, node, topic, pipelined).requests_per_second
        p99 = {}
        for share in _SHARES:
            rate = most * share
            bench.say(f"growth: latency at {share:.0%} of {most:,.0f} requests/s")
            p99[share] = [
                produce(
                    *(bench, node, topic, replace(ONE_RECORD, in_flight=20_000)),
                    *("--rate", f"{rate:.0f}"),
                    requests=int(rate * bench.round_seconds),
                ).replayed.p99_us
                for _ in range(bench.rounds)
            ]
    lowest = p99[_SHARES[0]]
    return [
        Row(PART, f"ack p99 at {share:.0%} load", "us", p99[share], lowest, None, "at 10%")
        for share in _SHARES[1:]
    ]
