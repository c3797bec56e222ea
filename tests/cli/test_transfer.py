"""Records to files, from files, and to other clusters.

Covers cli/transfer.py, cli/record_files.py, cli/record_sender.py.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.cli.consume import Reading
from millstream.cli.failure import CommandFailed
from millstream.cli.record_text import TextRecord
from millstream.cli.transfer import export
from tests.support.broker import Broker
from tests.support.command_line import Ran, run_millstream
from tests.support.sasl_node import PASSWORD, PLAIN_USER, sasl_node

LINES = (
    '{"key": "k", "value": "v", "timestamp": 1769860800000, "partition": 1,'
    ' "headers": [{"name": "h", "value": "1"}]}\n'
    '{"value_base64": "/wA=", "timestamp": 1769860801000, "partition": 0}\n'
    '{"key": "gone", "value": null, "timestamp": 1769860802000, "partition": 0}\n'
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"source": 2}) as running:
        ran = run_millstream("produce", "source", "-J", stdin=LINES, bootstrap=running.bootstrap)
        assert ran.exit_code == 0, ran.errors
        yield running


def records(broker: Broker, topic: str) -> list[dict[str, object]]:
    ran = run_millstream("consume", topic, "-e", "-J", bootstrap=broker.bootstrap)
    found = [json.loads(line) for line in ran.output.splitlines()]
    for each in found:
        del each["topic"], each["offset"]
    return sorted(found, key=lambda each: int(each["timestamp"]))


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_topic_goes_through_a_file_unchanged(broker: Broker, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"source.{ending}"
    ran = run_millstream("export", "source", "--to", str(file), bootstrap=broker.bootstrap)
    assert ran == Ran(0, "", f"wrote 3 records to {file}\n")
    copy = f"copy-{ending}"
    broker.create_topic(copy, partitions=2)
    ran = run_millstream(
        *["import", copy, "--from", str(file), "--keep-partitions"], bootstrap=broker.bootstrap
    )
    assert ran == Ran(0, "", f"sent 3 records to {copy}\n")
    assert records(broker, copy) == records(broker, "source")
    assert len(records(broker, copy)) == 3


def test_a_range_is_exported(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "part.jsonl"
    span = ["-o", "@2026-01-31T12:00:01Z"]
    run_millstream("export", "source", "--to", str(file), *span, bootstrap=broker.bootstrap)
    assert len(file.read_text().splitlines()) == 2


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_an_export_that_fails_leaves_the_file_as_it_was(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    file = tmp_path / f"kept.{ending}"
    arguments = ["--to", str(file), "--quiet"]
    ran = run_millstream("export", "no-such-topic", *arguments, bootstrap=broker.bootstrap)
    assert (ran.exit_code, list(tmp_path.iterdir())) == (1, [])
    file.write_text("before")
    ran = run_millstream("export", "no-such-topic", *arguments, bootstrap=broker.bootstrap)
    assert (ran.exit_code, file.read_text()) == (1, "before")

    def break_off(reading: Reading, limit: int) -> list[TextRecord]:
        if reading.ends and len(reading.ends) == 2:
            return take(reading, 1)
        raise CommandFailed("the broker is gone")

    take = Reading.take
    monkeypatch.setattr(Reading, "take", break_off)
    with pytest.raises(CommandFailed, match="the broker is gone"):
        export.main(["source", *arguments, "-b", broker.bootstrap], "export", standalone_mode=False)
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_an_export_replaces_what_a_link_names_and_keeps_its_mode(
    broker: Broker, tmp_path: Path
) -> None:
    file, link = tmp_path / "file", tmp_path / "link.jsonl"
    file.write_text("before")
    file.chmod(0o600)
    link.symlink_to(file)
    ran = run_millstream("export", "source", "--to", str(link), bootstrap=broker.bootstrap)
    assert ran.exit_code == 0, ran.errors
    assert (link.is_symlink(), len(file.read_text().splitlines())) == (True, 3)
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_export_into_a_pipe_or_a_folder_that_is_not_there(
    broker: Broker, tmp_path: Path
) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        ran = run_millstream("export", "source", "--to", str(pipe), bootstrap=broker.bootstrap)
        assert ran.exit_code == 0, ran.errors
        assert reader.stdout is not None
        assert len(reader.stdout.read().splitlines()) == 3
    assert pipe.is_fifo()
    missing = tmp_path / "missing" / "x.jsonl"
    ran = run_millstream("export", "source", "--to", str(missing), bootstrap=broker.bootstrap)
    assert ran == Ran(1, "", f"millstream: {missing}: No such file or directory\n")


def test_a_parquet_file_of_another_program_is_imported(broker: Broker, tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    file = tmp_path / "other.parquet"
    parquet.write_table(pyarrow.table({"value": ["a", "b"], "key": [1, None]}), file)
    broker.create_topic("other")
    run_millstream("import", "other", "--from", str(file), bootstrap=broker.bootstrap)
    ran = run_millstream("consume", "other", "-e", "-f", "%k=%v ", bootstrap=broker.bootstrap)
    assert ran.output == "1=a =b "
    parquet.write_table(pyarrow.table({"text": ["a"]}), file)
    ran = run_millstream("import", "other", "--from", str(file), bootstrap=broker.bootstrap)
    assert (ran.exit_code, "has no column value" in ran.errors) == (1, True)


def test_wrong_files_are_one_line(broker: Broker, tmp_path: Path) -> None:
    ran = run_millstream("export", "source", "--to", "x.csv", bootstrap=broker.bootstrap)
    assert (ran.exit_code, "must end with one of" in ran.errors) == (2, True)
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"value": "1"}\nnonsense\n')
    ran = run_millstream("import", "source", "--from", str(broken), bootstrap=broker.bootstrap)
    assert (ran.exit_code, "line 2: not JSON" in ran.errors) == (1, True)
    broken.with_suffix(".parquet").write_text("nonsense")
    ran = run_millstream(
        *["import", "source", "--from", str(broken.with_suffix(".parquet"))],
        bootstrap=broker.bootstrap,
    )
    assert (ran.exit_code, ran.errors.count("\n")) == (1, 1)


def test_a_topic_is_copied_to_another_cluster() -> None:
    with Broker(topics={"source": 2}) as broker, Broker() as other:
        run_millstream("produce", "source", "-J", stdin=LINES, bootstrap=broker.bootstrap)
        ran = run_millstream(
            *["mirror", "source", "--to", other.bootstrap, "--as", "copy", "-e"],
            bootstrap=broker.bootstrap,
        )
        assert ran == Ran(0, "", f"copied 3 records to copy at {other.bootstrap}\n")
        assert records(other, "copy") == records(broker, "source")
        other.create_topic("narrow", partitions=1)
        ran = run_millstream(
            *["mirror", "source", "--to", other.bootstrap, "--as", "narrow", "-e"],
            bootstrap=broker.bootstrap,
        )
        assert (ran.exit_code, "add partitions" in ran.errors) == (2, True)


def test_the_other_cluster_may_need_another_login(tmp_path: Path) -> None:
    with Broker(topics={"source": 2}) as broker, sasl_node("PLAIN") as other:
        run_millstream("produce", "source", "-J", stdin=LINES, bootstrap=broker.bootstrap)
        there = tmp_path / "there.properties"
        there.write_text(
            f"bootstrap.servers={other.bootstrap}\nsecurity.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism=PLAIN\nsasl.username={PLAIN_USER}\nsasl.password={PASSWORD}\n"
        )
        ran = run_millstream(
            "mirror", "source", "--to-config", str(there), "-e", bootstrap=broker.bootstrap
        )
        assert ran == Ran(0, "", f"copied 3 records to source at {other.bootstrap}\n")
        copied = run_millstream("consume", "source", "-e", "-J", "--config", str(there))
        assert copied.output.count("\n") == 3
    ran = run_millstream("mirror", "source", "-e", bootstrap=broker.bootstrap)
    assert (ran.exit_code, "name the other cluster: --to" in ran.errors) == (2, True)
