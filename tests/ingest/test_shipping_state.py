from pathlib import Path

import pytest

from millstream.ingest.shipping_state import (
    Acknowledged,
    StateUnreadable,
    load_state,
    save_state,
)
from millstream.ingest.tail import FileMark

MARK = FileMark(device=1, inode=2, position=3, head_length=4, head_crc=5)


def test_the_state_moves_only_over_lines_that_are_all_acknowledged() -> None:
    lines = Acknowledged()
    first, second, third = (lines.sent(1, end) for end in (10, 20, 30))
    second.is_acknowledged = True
    assert lines.take_last() is None
    first.is_acknowledged = True
    assert lines.take_last() is second
    assert lines.take_last() is None
    third.is_acknowledged = True
    assert lines.take_last() is third
    assert lines.waiting_count == 0


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert load_state(path) == {}
    save_state(path, {"/var/log/x": MARK})
    assert load_state(path) == {"/var/log/x": MARK}
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"version": 9, "files": {}}',
        b'{"version": 1, "files": []}',
        b'{"version": 1, "files": {"x": 5}}',
        b'{"version": 1, "files": {"x": {"device": 1}}}',
        b'{"version": 1, "files": {"x": {"device": 1, "inode": 2, "position": "3",'
        b' "head_length": 0, "head_crc": 0}}}',
    ],
)
def test_a_file_that_is_no_state_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(data)
    with pytest.raises(StateUnreadable):
        load_state(path)
