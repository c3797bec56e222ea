"""A start is mostly imports: what a node may do without until it is asked, it does not import.

Covers broker, cli/broker.py.
"""

import subprocess
import sys

_START = """
import asyncio, sys
from millstream.broker.broker import Broker
from millstream.config import load_config

async def main():
    flags = {"log.dirs": sys.argv[1], "listeners": "PLAINTEXT://127.0.0.1:0"}
    node = Broker(load_config(flags=flags), dev=True)
    await node.start()
    print(*(name for name in sys.modules if name.startswith("millstream.coordinators")))
    assert not node.coordination.has_groups and not node.coordination.has_transactions
    if sys.argv[2] == "asks":
        await node.coordination.groups.ensure_topic()
        await node.coordination.transactions.ensure_topic()
    await node.stop()

    again = Broker(load_config(flags=flags), dev=True)
    await again.start()
    print(again.coordination.has_groups, again.coordination.has_transactions)
    await again.stop()

asyncio.run(main())
"""


def _start_twice(directory: object, asks: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _START, str(directory), asks],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_node_without_groups_starts_without_what_they_need(tmp_path: object) -> None:
    assert _start_twice(tmp_path, "nothing") == ["", "False False"]


def test_a_node_that_had_groups_and_transactions_has_them_after_a_restart(
    tmp_path: object,
) -> None:
    assert _start_twice(tmp_path, "asks") == ["", "True True"]
