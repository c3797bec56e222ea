"""What `topic list` and `topic offsets` show.

Covers cli/topic_list.py, cli/watching.py.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.broker import Broker
from tests.support.command_line import run_millstream

NOON_MS = 1_769_860_800_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 2, "empty": 1}) as running:
        lines = "".join(
            json.dumps(
                {"value": "x" * 100, "timestamp": 1_769_860_800_000 + i * 1000, "partition": 1}
            )
            + "\n"
            for i in range(5)
        )
        run_millstream("produce", "orders", "-J", stdin=lines, bootstrap=running.bootstrap)
        yield running


def test_a_wide_list_has_records_and_bytes(broker: Broker) -> None:
    ran = run_millstream("topic", "list", "--wide", "--json", bootstrap=broker.bootstrap)
    empty, orders = json.loads(ran.output)
    assert (empty["name"], empty["records"], empty["size_bytes"]) == ("empty", 0, 0)
    assert (orders["partitions"], orders["replicas"], orders["records"]) == (2, 1, 5)
    assert orders["size_bytes"] > 500


def test_offsets_at_a_time(broker: Broker) -> None:
    at = ["--at", "2026-01-31T12:00:02Z"]
    ran = run_millstream("topic", "offsets", "orders", *at, "--json", bootstrap=broker.bootstrap)
    assert json.loads(ran.output) == [
        {"partition": 0, "log_start_offset": 0, "log_end_offset": 0, "at": 0},
        {"partition": 1, "log_start_offset": 0, "log_end_offset": 5, "at": 2},
    ]
    ran = run_millstream("topic", "offsets", "orders", bootstrap=broker.bootstrap)
    assert ran.output.split()[:3] == ["PARTITION", "LOG-START-OFFSET", "LOG-END-OFFSET"]
    ran = run_millstream("topic", "offsets", "orders", "--at", "soon", bootstrap=broker.bootstrap)
    assert ran.exit_code == 2
    ran = run_millstream("topic", "offsets", "nothing", bootstrap=broker.bootstrap)
    assert (ran.exit_code, "does not exist" in ran.errors) == (1, True)


@pytest.mark.parametrize("command", [["topic", "list"], ["group", "lag"]])
def test_watching_prints_again_until_ctrl_c(broker: Broker, command: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "millstream", *command, "--watch", "0.1", "-b", broker.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that run in the background of a shell ignore it, and so would the command.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        headings = 0
        while headings < 3:
            headings += process.stdout.readline().startswith(("NAME", "GROUP"))
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
