"""The demonstration's own parts: its file, its deadline, and the results it shows."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millstream.cli.demo import first_window_deadline, prepare_file
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.pipeline_results import Results
from millstream.pipeline import outputs
from millstream.pipeline.spec import Spec, parse_spec
from millstream.pipeline.status import PipelineStatus, QueryStatus
from tests.support.broker import Broker
from tests.support.waiting import wait_until

STATUS = PipelineStatus("demo", "now")


def going_on() -> int | None:
    return None


def query(name: str, *, batch: int, rows: int) -> QueryStatus:
    return QueryStatus(name, True, batch, rows, 0.0, 0, 0, None, 0, 0)


@pytest.mark.parametrize(
    ("queries", "said"),
    [
        ([], "not started"),
        ([query("lines", batch=-1, rows=0)], "not finished the first batch"),
        ([query("lines", batch=4, rows=0)], "no line arrived in 5 batches"),
        ([query("lines", batch=4, rows=70)], "70 lines were read (70 late), and none counted"),
    ],
)
def test_no_window_in_time_is_a_failure_with_its_reason(
    spec_without_node: Spec,
    monkeypatch: pytest.MonkeyPatch,
    queries: list[QueryStatus],
    said: str,
) -> None:
    now = [0.0]
    monkeypatch.setattr("millstream.cli.demo.time.monotonic", lambda: now[0])
    is_over = first_window_deadline(Results(spec_without_node), 20, load_ended=going_on)
    status = PipelineStatus("demo", "now", queries, {"late": 70})
    assert not is_over(status)
    now[0] = 300.5
    with pytest.raises(CommandFailed) as failed:
        is_over(status)
    assert said in str(failed.value)
    assert failed.value.exit_code == ExitCode.TIMEOUT


def test_traffic_that_ends_is_a_failure(spec_without_node: Spec) -> None:
    is_over = first_window_deadline(Results(spec_without_node), 20, load_ended=lambda: 4)
    with pytest.raises(CommandFailed, match="code 4"):
        is_over(STATUS)


@pytest.fixture
def spec_without_node(tmp_path: Path) -> Spec:
    return parse_spec("", folder=tmp_path)


def test_the_file_is_written_once_and_then_kept(tmp_path: Path) -> None:
    spec = prepare_file(tmp_path / "home", "127.0.0.1:1234")
    assert (spec.bootstrap, spec.window_ms) == ("127.0.0.1:1234", 10_000)
    path = tmp_path / "home" / "pipeline.toml"
    path.write_text(path.read_text().replace('name = "demo"', 'name = "mine"'))
    assert prepare_file(tmp_path / "home", "127.0.0.1:1234").name == "mine"


@pytest.fixture
def spec(kafka: Broker, tmp_path: Path, make_topic: Callable[..., str]) -> Spec:
    name = make_topic()[-20:]
    found = parse_spec(f'name = "{name}"\nbootstrap = "{kafka.bootstrap}"', folder=tmp_path)
    for output in (outputs.LIVE, outputs.ALERTS, outputs.VISITS, outputs.FUNNELS):
        kafka.create_topic(output.topic(found), partitions=2)
    return found


def window(start: str, name: str, count: int) -> dict[str, object]:
    return {
        "window_start": f"2026-09-21T{start}.000Z",
        "output": "service",
        "name": name,
        "count": count,
        "errors": 1,
        "duration_ms_p95": 2.5,
    }


@pytest.mark.slow
def test_the_newest_window_and_the_last_alerts_are_shown(spec: Spec) -> None:
    results = Results(spec)
    results.read()
    assert not first_window_deadline(results, 0.001, load_ended=going_on)(STATUS)
    producer = Producer({"bootstrap.servers": spec.bootstrap})
    alert = {"kind": "errors", "subject": "cart", "since": "2026-09-21T14:00:10Z", "text": "x"}
    rows = [window("14:00:00", "cart", 5), window("14:00:10", "cart", 2)]
    rows += [window("14:00:10", "cart", 3), window("14:00:00", "search", 9)]

    funnel = {"visits": 3, "steps": [{"step": "/cart", "visits": 2}]}
    funnels = [{"window_start": start, **funnel} for start in ("14:00", "14:01", "14:01")]

    def shown() -> tuple[object, ...]:
        rows = [(row.name, row.count) for row in results.rows()]
        found = (results.window_count, rows, results.funnel(), results.open_visit_count)
        return (*found, results.alerts, results.alert_count)

    expected = (
        *(2, [("cart", 3)], [("visits", 6), ("/cart", 4)], 1),
        *(["14:00:10 errors: cart x"], 1),
    )

    def is_there() -> bool:
        # The consumer begins at the end, wherever that is when it first asks, and may have
        # read a part; so again.
        for row in rows:
            producer.produce(outputs.LIVE.topic(spec), json.dumps(row), partition=0)
        for text in ("w", "x"):
            row = {**alert, "text": text}
            producer.produce(outputs.ALERTS.topic(spec), json.dumps(row), partition=1)
        for row in funnels:
            producer.produce(outputs.FUNNELS.topic(spec), json.dumps(row), partition=0)
        for visitor, value in (("a", "{}"), ("b", "{}"), ("a", None)):
            producer.produce(outputs.VISITS.topic(spec), value, key=visitor, partition=0)
        producer.flush(10)
        results.read()
        return shown() == expected

    try:
        wait_until(is_there, "windows and alerts are read")
        is_over = first_window_deadline(results, 0.000001, load_ended=going_on)
        wait_until(lambda: is_over(STATUS), "the time after the first window is over")
    finally:
        results.close()
