"""Completion in a shell: commands, and names from the cluster.

Covers cli/names.py, cli/completion.py.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.broker import Broker
from tests.support.command_line import run_millstream
from tests.support.ports import reserve_port


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 1, "offers": 1, "other": 1}) as running:
        yield running


def completed(line: str, bootstrap: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", "from millstream.cli.main import main; main()"],
        env={
            **os.environ,
            "_MILLSTREAM_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [each.partition(",")[2] for each in done.stdout.split()]


def test_names_of_topics_are_those_of_the_cluster(broker: Broker) -> None:
    assert completed("millstream consume o", broker.bootstrap) == ["offers", "orders", "other"]
    assert completed("millstream topic describe or", broker.bootstrap) == ["orders"]
    nowhere = f"127.0.0.1:{reserve_port()}"
    assert completed(f"millstream consume -b {broker.bootstrap} or", nowhere) == ["orders"]


def test_a_name_that_would_control_the_terminal_is_not_completed(broker: Broker) -> None:
    for group in ("of-people", "of-\x1b[31m", "of-two\nof-lines"):
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        consumer.close()
    assert completed("millstream group describe of", broker.bootstrap) == ["of-people"]


def test_without_a_broker_there_are_no_names_and_no_noise() -> None:
    assert completed("millstream consume o", f"127.0.0.1:{reserve_port()}") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_exists_for_each_shell(shell: str) -> None:
    ran = run_millstream("completion", shell)
    assert ran.exit_code == 0
    assert "_MILLSTREAM_COMPLETE" in ran.output
