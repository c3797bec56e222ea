"""Mypy knows the options: a wrong name or a wrong type does not pass `make lint`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAD = """\
from millstream.config import BrokerConfig, GroupConfig, TopicConfig
def ask(node: BrokerConfig, topic: TopicConfig, group: GroupConfig) -> None:
"""


def mypy_output(folder: Path, *calls: str) -> list[str]:
    program = folder / "program.py"
    program.write_text(HEAD + "".join(f"    {call}\n" for call in calls))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert not done.stderr
    return [line.partition("error: ")[2] for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_wrong_names_and_types_are_errors(tmp_path):
    found = mypy_output(
        tmp_path,
        'node.int("log.segment.byte")',
        'node.string("log.segment.bytes")',
        'topic.int("log.segment.bytes")',
        'topic.boolean("segment.bytes")',
        'group.list("consumer.session.timeout.ms")',
    )
    assert found == [
        'There is no option "log.segment.byte" here  [misc]',
        '"log.segment.bytes" is of type int; string() cannot read it  [misc]',
        'There is no option "log.segment.bytes" here  [misc]',
        '"segment.bytes" is of type int; boolean() cannot read it  [misc]',
        '"consumer.session.timeout.ms" is of type int; list() cannot read it  [misc]',
    ]


@pytest.mark.slow
def test_each_getter_takes_options_of_its_type(tmp_path):
    found = mypy_output(
        tmp_path,
        'node.int("log.segment.bytes")',
        'node.int("log.retention.ms")',
        'node.float("log.cleaner.min.cleanable.ratio")',
        'node.list("log.dirs")',
        'node.optional_string("broker.rack")',
        'topic.boolean("preallocate")',
        'topic.string("compression.type")',
        'group.int("consumer.session.timeout.ms")',
    )
    assert found == []
