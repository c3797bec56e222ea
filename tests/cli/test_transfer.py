"""Records to files, from files, and to other clusters.

Covers cli/transfer.py, cli/record_files.py, cli/record_sender.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

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
