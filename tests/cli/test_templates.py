"""`templates` as users run it, on files and on a topic."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support.command_line import run_millstream

pytestmark = pytest.mark.slow

MakeTopic = Callable[..., str]
NOBODY = "127.0.0.1:1"


def write(path: Path, *messages: str) -> str:
    lines = [f"2026-09-21 13:59:58 INFO {message}\n" for message in messages]
    path.write_text("".join(lines))
    return str(path)


def test_messages_of_a_file_are_grouped_and_compared_with_an_older_one(tmp_path: Path) -> None:
    older = write(tmp_path / "a.log.1", "took 5 ms", "took 6 ms", "no longer said")
    newer = write(tmp_path / "a.log", "took 7 ms", "never said before", "took 8 ms", "took 9 ms")
    done = run_millstream("templates", newer, "--before", older, bootstrap=NOBODY)
    assert done.exit_code == 0, done.errors
    assert [line.split(maxsplit=4) for line in done.output.splitlines()] == [
        ["COUNT", "SHARE", "BEFORE", "STATE", "TEMPLATE"],
        ["3", "75.0%", "2", "-", "took <*> ms"],
        ["1", "25.0%", "0", "new", "never said before"],
        ["0", "0.0%", "1", "vanished", "no longer said"],
    ]
    assert "4 lines, 3 templates" in done.errors


def test_a_topic_is_read_partition_by_partition(
    kafka_bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka_bootstrap})
    for number in range(20):
        line = f'{{"ts":1789999198,"msg":"sent {number} of them"}}'
        producer.produce(topic, line, partition=number % 2)
    producer.produce(topic, '{"ts":1789999198}', partition=0)
    producer.flush(30)
    done = run_millstream("templates", topic, "--json", bootstrap=kafka_bootstrap)
    assert done.exit_code == 0, done.errors
    assert json.loads(done.output) == {
        "lines": 21,
        "messages": 20,
        "others": 0,
        "templates": [
            {
                "template": "sent <*> of them",
                "count": 20,
                "before": None,
                "state": None,
                "sample": "sent 0 of them",
            }
        ],
    }


def test_what_is_neither_a_file_nor_a_topic_is_an_error(
    kafka_bootstrap: str, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing.log")
    done = run_millstream("templates", missing, bootstrap=kafka_bootstrap)
    assert (done.exit_code, f"{missing} is not a file" in done.errors) == (1, True)
    done = run_millstream("templates", "no-such-topic", bootstrap=kafka_bootstrap)
    assert done.exit_code != 0
    assert "no-such-topic" in done.errors
