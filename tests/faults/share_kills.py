"""kill -9 of consumers of a share group and of the node, while they work off a queue.

A record whose acknowledgement was confirmed is not delivered again, and no record is finished
before a consumer has accepted it. Each round has a new topic and group on the same data directory;
it ends when no record is left. The processes run the consumers of different clients; franz-go's
where Go is installed.
"""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.faults.kills import Round
from tests.support.node import MillstreamNode
from tests.support.raw_client import RawClient
from tests.support.share_member import create_topic, lag_of, produce, set_group_options
from tests.support.share_workers import Ledger, Workers, missing_franz_go
from tests.support.waiting import wait_until

PARTITIONS = 6
BATCHES = 60
BATCH = 10
TOTAL = PARTITIONS * BATCHES * BATCH
_DONE_SECONDS_MAX = 240
# A client, and how it acknowledges.
CLIENTS = (
    ("confluent", "explicit"),
    ("java", "explicit"),
    ("franz-go", "explicit"),
    ("java", "implicit"),
    ("confluent", "implicit"),
)

SETTINGS = {
    # Members that were killed are gone soon; until then, partitions may be theirs alone.
    "group.share.min.session.timeout.ms": "3000",
    "group.share.session.timeout.ms": "3000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    # Snapshots and updates both happen.
    "share.coordinator.snapshot.update.records.per.snapshot": "20",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.prune.interval.ms": "1000",
}


def share_kill_rounds(
    data_dir: Path, seeds: list[int], *, processes: int = 5, consumers: int = 20
) -> Iterator[Round]:
    """`processes` with so many `consumers` each."""
    options = [part for name, value in SETTINGS.items() for part in ("--set", f"{name}={value}")]
    node = MillstreamNode(data_dir, *options)
    with ExitStack() as stack:
        node.start()
        stack.callback(lambda: node.kill())
        for seed in seeds:
            yield _round(node, seed, processes, consumers)


def _round(node: MillstreamNode, seed: int, processes: int, consumers: int) -> Round:
    chance = random.Random(seed)
    name = f"queue-{seed}"
    _fill(node, name)
    ledger = Ledger()

    clients = clients_of(seed, processes)

    def start(number: int) -> Workers:
        kind, mode = clients[number]
        return Workers(kind, node.bootstrap, name, name, count=consumers, mode=mode, ledger=ledger)

    workers = [start(number) for number in range(processes)]
    faults = []
    try:
        wait_until(lambda: bool(ledger.lines), "the first confirmation")
        for _ in range(chance.randint(2, 4)):
            time.sleep(chance.random() * 0.4)
            victim = chance.randrange(processes)
            if chance.random() < 0.4:
                node.kill()
                time.sleep(chance.random() * 0.05)
                node.start()
                faults.append("node")
            else:
                workers[victim].kill()
                workers[victim] = start(victim)
                faults.append(" ".join(clients[victim]))
        wait_until(
            lambda: lag_of(node.bootstrap, name, name) == 0,
            "no record is left",
            seconds_max=_DONE_SECONDS_MAX,
        )
    finally:
        for one in workers:
            one.stop()
    return Round(
        seed=seed,
        acknowledged=len(ledger.accepted),
        fault=f"SIGKILL of {', '.join(faults)}",
        problems=_problems(ledger),
    )


def clients_of(seed: int, processes: int) -> list[tuple[str, str]]:
    """What each process of a round runs."""
    found = [one for one in CLIENTS if one[0] != "franz-go" or missing_franz_go() is None]
    return [found[(seed + number) % len(found)] for number in range(processes)]


def _fill(node: MillstreamNode, name: str) -> None:
    with RawClient(node.bootstrap) as client:
        create_topic(client, name, PARTITIONS)
        set_group_options(
            client, name, share_auto_offset_reset="earliest", share_delivery_count_limit="10"
        )
        for partition in range(PARTITIONS):
            produce(client, name, *[BATCH] * BATCHES, partition=partition)


def _problems(ledger: Ledger) -> list[str]:
    records = {(p, offset) for p in range(PARTITIONS) for offset in range(BATCHES * BATCH)}
    found = ledger.problems()
    lost = sorted(records - ledger.said_accepted)
    if lost:
        found.append(f"finished, though nobody has accepted them: {lost[:10]} of {len(lost)}")
    return found
