import asyncio
import sqlite3
import threading

import pytest

from millstream.cluster.stores.embedded import FILE_NAME, open_embedded_store
from millstream.cluster.stores.store import (
    CoordinationFailed,
    Create,
    Node,
    NodeExists,
    Put,
)


def test_what_was_answered_is_in_the_file_without_a_close(tmp_path):
    """As after kill -9: the file and its log are copied while the store is open."""
    copied = tmp_path / "copied"
    copied.mkdir()

    async def before():
        store = await open_embedded_store(tmp_path)
        await store.commit([Create("/a", b"1"), Create("/e", is_ephemeral=True)])
        for file in tmp_path.glob(FILE_NAME + "*"):
            (copied / file.name).write_bytes(file.read_bytes())
        await store.close()

    async def after():
        store = await open_embedded_store(copied)
        assert await store.tree("/") == {"/a": Node(b"1", 0)}
        await store.close()

    asyncio.run(before())
    asyncio.run(after())


def test_versions_and_the_transaction_count_go_on_after_a_restart(tmp_path):
    async def session():
        store = await open_embedded_store(tmp_path)
        if not await store.exists("/a"):
            await store.commit([Create("/a")])
        versions = await store.commit([Put("/a", b"")])
        count = await store.zxid()
        await store.close()
        return versions[0], count

    seen = [asyncio.run(session()) for _ in range(3)]
    assert [version for version, _ in seen] == [1, 2, 3]
    assert [count for _, count in seen] == [2, 3, 4]


def test_commits_are_synced(tmp_path):
    async def scenario():
        store = await open_embedded_store(tmp_path)
        settings = await store._call(
            lambda: (
                store._sql().execute("pragma synchronous").fetchone(),
                store._sql().execute("pragma journal_mode").fetchone(),
            )
        )
        await store.close()
        return settings

    assert asyncio.run(scenario()) == ((2,), ("wal",))


def test_concurrent_commits_follow_one_another(tmp_path):
    async def scenario():
        store = await open_embedded_store(tmp_path)
        await store.commit([Create("/n")])
        results = await asyncio.gather(
            *(store.commit([Put("/n", str(number).encode())]) for number in range(50)),
            *(store.commit([Create("/one")]) for _ in range(3)),
            return_exceptions=True,
        )
        assert sorted(version for (version,) in results[:50]) == list(range(1, 51))
        assert sum(isinstance(result, NodeExists) for result in results[50:]) == 2
        await store.close()

    asyncio.run(scenario())


def test_a_cancelled_commit_still_happens_and_tells_the_watches(tmp_path):
    async def scenario():
        store = await open_embedded_store(tmp_path)
        fired = asyncio.Event()
        await store.exists("/a", fired.set)
        task = asyncio.create_task(store.commit([Create("/a")]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(10):
            await fired.wait()
        assert await store.exists("/a")
        await store.close()

    asyncio.run(scenario())


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("coordination")]


@pytest.mark.parametrize("content", [b"this is not a database, it is a text" * 100, None])
def test_a_file_that_cannot_be_used_is_one_clear_failure(tmp_path, content):
    path = tmp_path / FILE_NAME
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    threads = own_threads()
    with pytest.raises(CoordinationFailed, match=FILE_NAME):
        asyncio.run(open_embedded_store(tmp_path))
    assert len(own_threads()) <= len(threads) + 1
    if content is not None:
        assert path.read_bytes() == content


def test_damage_anywhere_in_the_file_is_found_when_it_is_opened(tmp_path):
    async def make():
        store = await open_embedded_store(tmp_path)
        await store.close()

    asyncio.run(make())
    database = sqlite3.connect(tmp_path / FILE_NAME)
    rows = [(f"/{number}", "/", b"x" * 100, 0, 0) for number in range(100)]
    database.executemany("insert into node values (?, ?, ?, ?, ?)", rows)
    database.commit()
    database.close()
    whole = (tmp_path / FILE_NAME).read_bytes()
    for page in range(0, len(whole), 4096):
        damaged = whole[:page] + b"\xff" * 4096 + whole[page + 4096 :]
        (tmp_path / FILE_NAME).write_bytes(damaged)
        with pytest.raises(CoordinationFailed):
            asyncio.run(make())


def test_a_file_of_a_newer_release_is_not_touched(tmp_path):
    async def make():
        store = await open_embedded_store(tmp_path)
        await store.close()

    asyncio.run(make())
    database = sqlite3.connect(tmp_path / FILE_NAME)
    database.execute("update counter set value = 2 where name = 'format'")
    database.commit()
    database.close()
    with pytest.raises(CoordinationFailed, match="newer release"):
        asyncio.run(make())


def test_a_second_user_of_the_file_is_refused(tmp_path):
    async def scenario():
        store = await open_embedded_store(tmp_path)
        await store.commit([Create("/a")])
        with pytest.raises(CoordinationFailed, match="locked"):
            await open_embedded_store(tmp_path)
        assert await store.exists("/a")
        await store.close()

    asyncio.run(scenario())


def test_a_full_disk_refuses_whole_transactions_and_forgets_nothing(tmp_path):
    async def scenario():
        store = await open_embedded_store(tmp_path)
        await store.commit([Create("/a", b"before")])
        await store._call(lambda: store._sql().execute("pragma max_page_count = 30").fetchall())
        with pytest.raises(CoordinationFailed, match="full"):
            await store.commit([Put("/a", b"after"), Create("/big", bytes(1 << 20))])
        assert await store.tree("/") == {"/a": Node(b"before", 0)}
        await store._call(lambda: store._sql().execute("pragma max_page_count = 9999").fetchall())
        await store.commit([Create("/big", bytes(1 << 20))])
        await store.close()

    asyncio.run(scenario())


class FailingDatabase:
    """Stands before the real one; an operation can be told to fail like a broken disk."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.fails_on = ""

    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
        if self.fails_on and sql.startswith(self.fails_on):
            problem = sqlite3.OperationalError("disk I/O error")
            # SQLITE_IOERR_FSYNC
            problem.sqlite_errorcode = 1034
            raise problem
        return self._database.execute(sql, *arguments)

    def __getattr__(self, name: str) -> object:
        return getattr(self._database, name)


@pytest.mark.parametrize("fails_on", ["commit", "pragma wal_checkpoint"])
def test_after_an_error_of_the_disk_nothing_more_is_answered(tmp_path, fails_on):
    async def scenario():
        store = await open_embedded_store(tmp_path)
        await store.commit([Create("/a")])
        database = FailingDatabase(store._database)
        store._database = database
        database.fails_on = fails_on
        with pytest.raises(CoordinationFailed, match="disk I/O error"):
            await store.commit([Put("/a", b"")] * 5_000)
        database.fails_on = ""
        for attempt in (store.get("/a"), store.commit([Put("/a", b"")])):
            with pytest.raises(CoordinationFailed, match="disk I/O error"):
                await attempt
        await store.close()

    asyncio.run(scenario())


def test_the_log_does_not_grow_without_end(tmp_path):
    async def scenario():
        store = await open_embedded_store(tmp_path)
        await store.commit([Create("/a")])
        sizes = []
        for _ in range(6):
            await store.commit([Put("/a", bytes(100))] * 2_000)
            sizes.append((tmp_path / (FILE_NAME + "-wal")).stat().st_size)
        assert min(sizes) == 0
        await store.close()

    asyncio.run(scenario())
