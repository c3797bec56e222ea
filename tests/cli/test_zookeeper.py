"""`millstream zookeeper`: the credential that it creates. Many other tests use its server."""

import asyncio
from pathlib import Path

from millstream.cli.zookeeper import digest_file
from millstream.cluster.stores.store import Create
from millstream.cluster.stores.zookeeper import open_zookeeper
from tests.support.permissions import open_to_others, open_umask
from tests.support.zookeeper import ensemble_at, zookeeper_server


def test_the_credential_is_created_once_and_for_its_owner_only(tmp_path: Path) -> None:
    path = digest_file(tmp_path / "new")
    text = path.read_text()
    user, colon, password = text.strip().partition(":")
    assert (user, colon) == ("millstream", ":")
    assert len(password) == 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert digest_file(tmp_path / "new").read_text() == text


def test_what_zookeeper_stores_is_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "zookeeper"

    async def store_a_secret(address: str) -> None:
        store = await open_zookeeper(ensemble_at(address))
        await store.commit([Create("/secret", b"hunter2")])
        await store.close()

    with open_umask(), zookeeper_server(folder) as server:
        asyncio.run(store_a_secret(server.address))
        holding = [
            path for path in folder.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()
        ]
        assert holding
        assert (folder / "zoo.cfg").exists()
        assert open_to_others(folder) == []


def test_what_an_earlier_version_left_open_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "zookeeper"
    state, output, settings = folder / "version-2", folder / "zookeeper.output", folder / "zoo.cfg"
    with open_umask():
        state.mkdir(parents=True)
        output.write_text("before\n")
        settings.write_text("of before, and longer\n" * 100)
        with zookeeper_server(folder):
            assert open_to_others(state) == []
            assert output.stat().st_mode & 0o077 == 0
            assert output.read_text().startswith("before\n")
            assert "of before" not in settings.read_text()
    # It was there before: it may be anybody's.
    assert folder.stat().st_mode & 0o777 == 0o755
