"""How many partitions, consumers, nodes, and how much disk and memory a load needs.

Plain arithmetic over measured rates. Every step is kept as text, so that a person can
check it. A megabyte is a million bytes.

Decides from numbers alone and does not measure anything.
"""

import math
from dataclasses import dataclass
from typing import Final

# The share of measured rates to use: the rest is for peaks, restarts, a node that is down.
SHARE_USED: Final = 0.5
# The share of a disk to fill.
DISK_SHARE_FILLED: Final = 0.8
# Readers that are no further behind than this read from memory.
CACHED_SECONDS: Final = 300
# Beyond this multiple of what is needed, partitions only cost.
PARTITIONS_EXCESS: Final = 4
_DAY_SECONDS: Final = 86_400
_MEGABYTES_PER_GIGABYTE: Final = 1000


@dataclass(frozen=True, slots=True)
class Rates:
    """Measured rates of one machine, in megabytes a second and processor seconds."""

    partition_mb_per_second: float
    consumer_mb_per_second: float
    disk_mb_per_second: float
    # What a node spends on receiving a megabyte, and on sending one.
    cpu_seconds_per_mb_in: float
    cpu_seconds_per_mb_out: float


@dataclass(frozen=True, slots=True)
class Load:
    """`readers` is how many groups read everything."""

    mb_per_second: float
    retention_seconds: float
    replicas: int
    readers: int = 1


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the advice: what, how much of it, and the calculation."""

    name: str
    value: str
    arithmetic: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Advice:
    partitions: int
    consumers: int
    nodes: int
    disk_gb_per_node: float
    cache_gb_per_node: float
    figures: tuple[Figure, ...]


def advise(load: Load, rates: Rates) -> Advice:
    nodes, nodes_why = _nodes(load, rates)
    consumers, consumers_why = _consumers(load, rates)
    partitions, partitions_why = _partitions(load, rates, consumers=consumers, nodes=nodes)
    disk_gb = (
        load.mb_per_second
        * load.retention_seconds
        * load.replicas
        / nodes
        / DISK_SHARE_FILLED
        / _MEGABYTES_PER_GIGABYTE
    )
    cache_gb = load.mb_per_second * load.replicas * CACHED_SECONDS / nodes / _MEGABYTES_PER_GIGABYTE
    figures = (
        Figure("partitions", str(partitions), partitions_why),
        Figure("consumers", f"{consumers} in each group", consumers_why),
        Figure("nodes", str(nodes), nodes_why),
        Figure(
            "disk",
            f"{_text(disk_gb)} GB for each node",
            (
                f"{_text(load.mb_per_second)} MB/s x {_text(load.retention_seconds / _DAY_SECONDS)}"
                f" days x {load.replicas} replicas / {nodes} nodes,"
                f" {DISK_SHARE_FILLED:.0%} filled",
            ),
        ),
        Figure(
            "page cache",
            f"{_text(cache_gb)} GB for each node",
            (
                f"{_text(load.mb_per_second)} MB/s x {load.replicas} replicas x {CACHED_SECONDS} s"
                f" / {nodes} nodes: readers that are less behind read from memory",
            ),
        ),
    )
    return Advice(partitions, consumers, nodes, disk_gb, cache_gb, figures)


def _nodes(load: Load, rates: Rates) -> tuple[int, tuple[str, ...]]:
    """Each node has one processor core for its loop, and a disk."""
    in_mb = load.mb_per_second * load.replicas
    out_mb = load.mb_per_second * (load.replicas - 1 + load.readers)
    cores = in_mb * rates.cpu_seconds_per_mb_in + out_mb * rates.cpu_seconds_per_mb_out
    for_cores = _ceil(cores / SHARE_USED)
    for_disks = _ceil(in_mb / (rates.disk_mb_per_second * SHARE_USED))
    nodes = max(load.replicas, for_cores, for_disks)
    return nodes, (
        f"in: {_text(load.mb_per_second)} MB/s x {load.replicas} replicas ="
        f" {_text(in_mb)} MB/s; out: {_text(load.mb_per_second)} MB/s x"
        f" ({load.replicas - 1} followers + {load.readers} groups) = {_text(out_mb)} MB/s",
        f"processor: {_text(in_mb)} x {_milliseconds(rates.cpu_seconds_per_mb_in)} +"
        f" {_text(out_mb)} x {_milliseconds(rates.cpu_seconds_per_mb_out)} ="
        f" {_text(cores)} cores, one a node, {SHARE_USED:.0%} used: {for_cores}",
        f"disk: {_text(in_mb)} MB/s / {_text(rates.disk_mb_per_second)} MB/s,"
        f" {SHARE_USED:.0%} used: {for_disks}",
        f"one for each of {load.replicas} replicas",
    )


def _consumers(load: Load, rates: Rates) -> tuple[int, tuple[str, ...]]:
    consumers = _ceil(load.mb_per_second / (rates.consumer_mb_per_second * SHARE_USED))
    return consumers, (
        f"{_text(load.mb_per_second)} MB/s / {_text(rates.consumer_mb_per_second)} MB/s for each,"
        f" {SHARE_USED:.0%} used",
    )


def _partitions(
    load: Load, rates: Rates, *, consumers: int, nodes: int
) -> tuple[int, tuple[str, ...]]:
    to_write = partitions_to_write(load.mb_per_second, rates)
    needed = max(to_write, consumers, nodes)
    partitions = _ceil(needed / nodes) * nodes
    return partitions, (
        f"to write: {_text(load.mb_per_second)} MB/s / {_text(rates.partition_mb_per_second)} MB/s"
        f" for each, {SHARE_USED:.0%} used: {to_write}",
        f"to read: one for each of {consumers} consumers",
        f"the most of these and of {nodes} nodes, as a multiple of the nodes",
    )


def partitions_to_write(mb_per_second: float, rates: Rates) -> int:
    return _ceil(mb_per_second / (rates.partition_mb_per_second * SHARE_USED))


# -- existing topics -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicLoad:
    """An observed topic. `members` are those of the largest group that reads it."""

    name: str
    partitions: int
    mb_per_second: float
    members: int = 0


@dataclass(frozen=True, slots=True)
class TopicVerdict:
    topic: TopicLoad
    needed: int
    verdict: str
    why: str


def judge_topic(topic: TopicLoad, rates: Rates, *, nodes: int) -> TopicVerdict:
    to_write = partitions_to_write(topic.mb_per_second, rates)
    to_read = _ceil(topic.mb_per_second / (rates.consumer_mb_per_second * SHARE_USED))
    needed = max(to_write, to_read, topic.members)
    if topic.partitions < needed:
        reasons = [
            (to_write, "to write this much"),
            (to_read, "to read this much"),
            (topic.members, "for the members of a group"),
        ]
        why = max(reasons, key=lambda reason: reason[0])[1]
        return TopicVerdict(topic, needed, "too few", f"{needed} are needed {why}")
    enough = PARTITIONS_EXCESS * max(needed, nodes)
    if topic.partitions > enough:
        why = f"more than {PARTITIONS_EXCESS} x {max(needed, nodes)}: each costs files and memory"
        return TopicVerdict(topic, needed, "too many", why)
    return TopicVerdict(topic, needed, "right", "")


def _ceil(value: float) -> int:
    # A millionth of a partition is a rounding error, not a partition.
    return max(1, math.ceil(value - 1e-6))


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _milliseconds(seconds: float) -> str:
    return f"{_text(seconds * 1000)} ms"
