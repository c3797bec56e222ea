from pathlib import Path

import pytest

from millstream.cli.remembered import keep_times, memory_path, recall_times


def test_times_are_kept_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = memory_path("health", "../a b")
    assert path.parent == tmp_path / "millstream"
    assert recall_times(path) == {}
    keep_times(path, {"one": 1.5})
    assert recall_times(path) == {"one": 1.5}


@pytest.mark.parametrize("text", ["{", "[]", '{"one": null}', '"text"'])
def test_a_damaged_file_is_no_failure(tmp_path: Path, text: str) -> None:
    path = tmp_path / "health.json"
    path.write_text(text)
    assert recall_times(path) == {}
    keep_times(tmp_path / "health.json" / "below-a-file", {"one": 1.0})
