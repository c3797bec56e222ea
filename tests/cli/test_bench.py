"""`millstream bench`: that it measures, not how fast."""

import json
from collections.abc import Iterator

import pytest

from millstream.cli.bench import percentile
from tests.support.broker import Broker
from tests.support.command_line import run_millstream


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def test_a_percentile_is_a_value_that_occurred() -> None:
    assert percentile([], 50) is None
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0


@pytest.mark.parametrize("which", ["produce", "consume", "e2e"])
def test_it_measures_and_cleans_up(broker: Broker, which: str) -> None:
    ran = run_millstream("bench", which, "-n", "200", "--json", bootstrap=broker.bootstrap)
    assert ran.exit_code == 0, ran.errors
    found = json.loads(ran.output)
    assert found["records"] == 200
    assert found["records_per_second"] > 0
    assert (found["latency_ms_p99"] is None) == (which == "consume")
    assert (
        json.loads(run_millstream("topic", "list", "--json", bootstrap=broker.bootstrap).output)
        == []
    )


def test_an_empty_topic_cannot_be_read(broker: Broker) -> None:
    with Broker(topics={"empty": 1}) as other:
        ran = run_millstream("bench", "consume", "--topic", "empty", bootstrap=other.bootstrap)
    assert (ran.exit_code, "empty" in ran.errors) == (1, True)
