import stat
from pathlib import Path

from millstream.cluster.stores.last_session import SessionKey, read_session, write_session
from millstream.cluster.stores.store import SESSION_FILE


def test_a_session_is_kept_for_the_next_run_and_from_others(tmp_path: Path) -> None:
    assert read_session(tmp_path) is None
    key = SessionKey(2**40, bytes(range(16)))
    write_session(tmp_path, SessionKey(1, b"longer than the next one"))
    write_session(tmp_path, key)
    assert read_session(tmp_path) == key
    assert stat.S_IMODE((tmp_path / SESSION_FILE).stat().st_mode) == 0o600
    (tmp_path / SESSION_FILE).write_text("{")
    assert read_session(tmp_path) is None
