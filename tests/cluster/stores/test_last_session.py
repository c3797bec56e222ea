import asyncio
import logging
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.cluster.stores import zookeeper
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


def test_a_session_that_cannot_be_kept_is_used_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A member that lost its session while the disk is full would stay out of the cluster."""

    async def protect_older() -> None:
        pass

    async def open_zookeeper(ensemble: object) -> Any:
        return store

    def full(directory: Path, key: SessionKey) -> None:
        raise OSError(28, "No space left on device")

    store: Any = SimpleNamespace(key=SessionKey(1, b"secret"), protect_older=protect_older)
    ensemble: Any = None
    monkeypatch.setattr(zookeeper, "open_zookeeper", open_zookeeper)
    monkeypatch.setattr(zookeeper, "write_session", full)
    with caplog.at_level(logging.WARNING):
        found = asyncio.run(zookeeper.open_for_directory(ensemble, tmp_path))
    assert found is store
    assert "No space left on device" in caplog.text
