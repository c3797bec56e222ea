"""kill -9 of the node under load, again and again, on one data directory.

Three clients write to twelve partitions each: an idempotent one, one with acks=1, and one in
transactions.
"""

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.faults import load, transactions
from tests.faults.ledger import Ledger, problems
from tests.faults.transactions import TransactionalWriter
from tests.support.node import MillstreamNode

_PARTITIONS = 12
ACKNOWLEDGED_PER_ROUND_MIN = 2000


@dataclass(frozen=True)
class Round:
    seed: int
    acknowledged: int
    fault: str
    problems: list[str]


def kill_rounds(data_dir: Path, seeds: list[int]) -> Iterator[Round]:
    """One round per seed: load, kill at a random moment, start again, read and compare."""
    node = MillstreamNode(data_dir, "--set", "log.segment.bytes=1048576")
    with ExitStack() as stack:
        node.start()
        stack.callback(lambda: node.kill())
        load.create_topic(node.bootstrap, partitions=_PARTITIONS)
        transactions.create_topic(node.bootstrap)
        for seed in seeds:
            yield _round(node, seed)


def _round(node: MillstreamNode, seed: int) -> Round:
    chance = random.Random(seed)
    # Earlier rounds have been checked; this one begins at the end.
    start = load.end_offsets(node.bootstrap)
    transactions_start = transactions.end_offsets(node.bootstrap)
    ledger = Ledger()
    writers = load.writers(node.bootstrap, ledger, seed, partitions=_PARTITIONS)
    transactional = TransactionalWriter(node.bootstrap, seed)
    load.wait_until_acknowledged(ledger, ACKNOWLEDGED_PER_ROUND_MIN)
    delay = chance.random() * 0.3
    time.sleep(delay)
    in_flight = sum(writer.in_flight for writer in writers)
    pid = node.pid
    node.kill()
    time.sleep(chance.random() * 0.05)
    node.start()
    # The idempotent writer goes on where it was: its retries meet the recovered state.
    reached = ledger.counts.total()
    load.wait_until_acknowledged(ledger, reached + 200)
    for writer in [*writers, transactional]:
        writer.stop()
    found, _ = load.read_all(node.bootstrap, start)
    in_transactions = transactions.read_committed(node.bootstrap, transactions_start)
    done = transactional.transactions
    return Round(
        seed=seed,
        acknowledged=len(ledger.acknowledged) + done.committed_records,
        fault=f"SIGKILL of {pid} with {in_flight} in flight; {len(done.committed)} transactions "
        f"committed, {len(done.aborted)} aborted, {len(done.unknown)} unknown",
        problems=problems(ledger, found, writers={"all", "one"})
        + transactions.problems(done, in_transactions),
    )
