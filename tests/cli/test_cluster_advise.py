"""`millstream cluster advise`: for a load to come, and for topics that there are."""

import json
from pathlib import Path

import pytest

from millstream.cli.cluster_advise import topic_rates
from millstream.cli.machine_rates import (
    Measurement,
    cache_path,
    measure,
    read_measurement,
    write_measurement,
)
from millstream.cluster.sizing import Rates
from millstream.model import TopicPartition
from tests.support.command_line import run_millstream

RATES = Rates(100.0, 50.0, 400.0, 0.002, 0.001)


@pytest.fixture(autouse=True)
def kept_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    write_measurement(cache_path(), Measurement(RATES, "2026-01-31"))


def test_a_load_is_sized_with_rates_that_were_kept() -> None:
    ran = run_millstream("cluster", "advise", "--mb-per-second", "200")
    assert ran.exit_code == 0, ran.errors
    assert "measured on this machine on 2026-01-31" in ran.output
    assert "nodes       4\n" in ran.output
    assert "600 x 2 ms + 600 x 1 ms = 1.8 cores" in ran.output


def test_advice_for_programs_is_json_alone() -> None:
    options = ("--mb-per-second", "50", "--consumer-mb-per-second", "10", "--json")
    found = json.loads(run_millstream("cluster", "advise", *options).output)
    assert (found["consumers"], found["partitions"], found["nodes"]) == (10, 12, 3)


@pytest.mark.slow
def test_topics_of_a_running_cluster_are_judged(bootstrap: str) -> None:
    run_millstream("topic", "create", "crowded", "-p", "40", bootstrap=bootstrap)
    run_millstream("topic", "create", "plain", "-p", "1", bootstrap=bootstrap)
    ran = run_millstream("cluster", "advise", "--seconds", "1", "--json", bootstrap=bootstrap)
    found = {one["topic"]: one for one in json.loads(ran.output)}
    assert found["crowded"]["verdict"] == "too many"
    assert found["plain"]["verdict"] == "right"
    table = run_millstream("cluster", "advise", "--seconds", "1", bootstrap=bootstrap)
    assert "more than 4 x 1: each costs files and memory" in table.output


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "give --mb-per-second, or --bootstrap"),
        (("--mb-per-second", "1", "--retention", "soon"), "'soon' is not a duration"),
        (("--mb-per-second", "0"), "0.0 is not in the range"),
    ],
)
def test_wrong_usage_is_told(arguments: tuple[str, ...], problem: str) -> None:
    ran = run_millstream("cluster", "advise", *arguments)
    assert ran.exit_code == 2
    assert problem in ran.errors


def test_a_topic_grows_by_what_its_partitions_grew() -> None:
    first, second, still = (TopicPartition(*one) for one in (("a", 0), ("a", 1), ("b", 0)))
    before = {first: 100, second: 500, still: 0}
    after = {first: 300, second: 100, still: 0, TopicPartition("c", 0): 50}
    # What retention deleted is not growth, and a new topic began with nothing.
    assert list(topic_rates(before, after, 10.0)) == [("a", 2, 20.0), ("b", 1, 0.0), ("c", 1, 5.0)]


def test_a_kept_measurement_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "rates.json").write_text("{")
    assert read_measurement(tmp_path / "rates.json") is None
    assert read_measurement(tmp_path / "nothing.json") is None


@pytest.mark.slow
def test_a_machine_is_measured_and_nothing_is_left(tmp_path: Path) -> None:
    found = measure(tmp_path, seconds=2.0)
    assert (
        min(
            found.rates.partition_mb_per_second,
            found.rates.consumer_mb_per_second,
            found.rates.disk_mb_per_second,
        )
        > 0
    )
    assert [path.name for path in tmp_path.iterdir()] == ["millstream"]
