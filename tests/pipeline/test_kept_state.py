"""Results after a restart are those without one."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.pipeline import anomalies, kept_state, template_log
from millstream.pipeline.kept_state import BatchParts, KeptState, StateMissing
from millstream.pipeline.state_files import files_of
from millstream.spark.failure import SourceError
from tests.pipeline.events import RULES, SECOND_US, Event, gathered, new_results, parts_of, plain

MINUTE_US = RULES.window_us


def batches(count: int) -> list[BatchParts]:
    """Half a minute each: windows, visits and hosts come and go."""
    found = []
    for number in range(count):
        at_us = number * MINUTE_US // 2
        events = [
            Event(at_us, host=f"h{number % 5}", gauges=(1.0 * number, None), duration_ms=number),
            Event(at_us + 3, host="web", counter=number % 7, message=f"job {number} of red done"),
            Event(at_us + 3, message=f"user {'abc'[number % 3]} said {number} words"),
            *[Event(at_us + 3, message="out of memory")] * (number == 16),
            # For a while there are more lines than usual.
            *[Event(at_us + 4)] * (40 if 10 <= number < 14 else 0),
            Event(at_us + 1, path="/a", visitor=number % 3, status=500),
            Event(at_us + 2 - 20 * SECOND_US, path=f"/b{number}", visitor=number % 4),
        ]
        found.append(parts_of(gathered(events, first=100 * number), now_ms=at_us // 1000))
    return found


def kept(folder: Path) -> KeptState:
    return KeptState(files_of(folder), new_results)


def all_changes(folder: Path, parts: list[BatchParts], restarts: set[int]) -> list[dict[str, Any]]:
    """Before these batches the process dies twice, and each time the batch before is repeated."""
    found: list[dict[str, Any]] = []
    state = kept(folder)
    for number, each in enumerate(parts):
        for _ in range(2 if number in restarts else 0):
            state = kept(folder)
            if number:
                assert plain(state.add(number - 1, parts[number - 1])) == found[-1]
                state.tidy()
        found.append(plain(state.add(number, each)))
        state.tidy()
    return found


@settings(deadline=None, max_examples=12)
@given(st.sets(st.integers(0, 23)), st.sampled_from([1, 3, 200]))
def test_a_restart_anywhere_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, restarts: set[int], every: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_state, "_BATCHES_MAX", every)
        patch.setattr(anomalies, "RECENT_MIN", 3)
        patch.setattr(template_log, "WATCHED_WINDOWS", 3)
        parts = batches(24)
        whole = all_changes(tmp_path_factory.mktemp("whole"), parts, set())
        assert all_changes(tmp_path_factory.mktemp("again"), parts, restarts) == whole
    assert any(each["closed"] for each in whole)
    assert any(each["ended"] for each in whole)
    assert any(each["hosts"] for each in whole)
    assert any(window[-1] for each in whole for window in each["closed"])
    alerts = [alert for each in whole for alert in each["anomalies"]]
    of_input = [alert.kind for alert in alerts if alert.key == ("input", "all", "per_second")]
    assert of_input == ["anomaly", "usual"]
    assert any(each["templates"] for each in whole)
    assert [alert.kind for each in whole for alert in each["template_alerts"]] == ["new"]
    assert any(None in each["open"].values() for each in whole)


def test_old_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_state, "_BATCHES_MAX", 4)
    all_changes(tmp_path, batches(18), set())
    names = sorted(path.name for path in tmp_path.iterdir())
    # The whole state before the last one, and all that came since: a batch may be repeated.
    assert names[0] == "000000000011.batch"
    assert [name for name in names if name.endswith(".state")] == [
        "000000000011.state",
        "000000000015.state",
    ]
    assert len(names) == 2 + 7


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    all_changes(tmp_path, batches(3), set())
    (tmp_path / "000000000001.batch").unlink()
    with pytest.raises(StateMissing, match=r"000000000001.batch is missing.*another home"):
        kept(tmp_path).add(3, batches(4)[3])


def test_state_of_before_there_were_series_and_templates_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_state, "_BATCHES_MAX", 4)
    parts = batches(8)
    all_changes(tmp_path, parts[:4], set())
    [state] = tmp_path.glob("*.state")
    whole = kept_state._decode(state.read_bytes())
    newer = {"series", "templates", "template_counts", "counters", "skeletons"}
    old = [(name, value) for name, value in whole.tables if name not in newer]
    assert len(old) < len(whole.tables)
    kept_facts = {name: whole.facts[name] for name in ("newest_us", "dropped")}
    state.write_bytes(kept_state._encode(old, kept_facts))
    again = kept(tmp_path)
    found = plain(again.add(4, parts[4]))
    # What was counted before is still there.
    assert any(row[0][0] < 4 * MINUTE_US // 2 for row in found["live"] + found["closed"])
    assert found["templates"]


def spark_wrote(checkpoint: Path, number: int, offsets: str) -> None:
    """What Spark has written when a batch is at work."""
    files = {"metadata": "query", f"offsets/{number}": offsets}
    if number:
        files[f"commits/{number - 1}"] = "done"
    for name, text in files.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(text)


def test_another_machine_begins_with_the_last_batch_that_was_kept(
    tmp_path: Path, bucket: str
) -> None:
    parts = batches(3)
    state = KeptState(files_of(bucket), new_results, tmp_path / "one")
    for number, each in enumerate(parts):
        spark_wrote(tmp_path / "one", number, f"up to {number}")
        last = plain(state.add(number, each))
    # Planned, and not kept: it has had no effect.
    spark_wrote(tmp_path / "one", 3, "up to 3")
    for machine in ("one", "two"):
        again = KeptState(files_of(bucket), new_results, tmp_path / machine)
        again.begin()
        found = sorted(path for path in (tmp_path / machine).rglob("*") if path.is_file())
        names = [str(path.relative_to(tmp_path / machine)) for path in found]
        assert names == ["commits/1", "metadata", "offsets/1", "offsets/2"]
        assert (tmp_path / machine / "offsets/2").read_text() == "up to 2"
        assert plain(again.add(2, parts[2])) == last


def test_of_two_drivers_one_is_refused(tmp_path: Path, bucket: str) -> None:
    parts = batches(2)
    for machine in ("one", "two"):
        spark_wrote(tmp_path / machine, 0, "up to 0")
        spark_wrote(tmp_path / machine, 1, f"up to 1, planned by {machine}")
    one, two = (
        KeptState(files_of(bucket), new_results, tmp_path / machine) for machine in ("one", "two")
    )
    assert plain(one.add(0, parts[0])) == plain(two.add(0, parts[0]))
    one.add(1, parts[1])
    with pytest.raises(SourceError, match=r"STATE_TAKEN.*another driver.*000000000001.batch"):
        two.add(1, parts[1])


def test_a_batch_that_other_settings_parse_differently_is_merged_as_the_first_time(
    tmp_path: Path, bucket: str
) -> None:
    [parts, _] = batches(2)
    spark_wrote(tmp_path / "one", 0, "up to 0")
    first = KeptState(files_of(bucket), new_results, tmp_path / "one").add(0, parts)
    # Spark's commit is missing, and meanwhile somebody corrected the time zone.
    hour_us = 3600 * SECOND_US
    events = [Event(hour_us, host="other")]
    edited = parts_of(gathered(events), now_ms=parts.now_ms)
    assert edited.newest_us != parts.newest_us
    again = KeptState(files_of(bucket), new_results, tmp_path / "one")
    again.begin()
    assert plain(again.add(0, edited)) == plain(first)


def test_a_state_in_a_bucket_is_tidied(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_state, "_BATCHES_MAX", 4)
    state = KeptState(files_of(bucket), new_results, tmp_path / "one")
    for number, each in enumerate(batches(18)):
        spark_wrote(tmp_path / "one", number, f"up to {number}")
        state.add(number, each)
        state.tidy()
    assert len(files_of(bucket).names()) == 2 + 7
    again = KeptState(files_of(bucket), new_results, tmp_path / "two")
    again.begin()
    assert plain(again.add(17, batches(18)[17]))["live"]
