"""Ranges that are not cached: a thread reads them, and what follows, while the socket drains."""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.network import read_ahead
from millstream.broker.network.output import PlainOutput, SendRange
from millstream.broker.network.read_ahead import AHEAD_BYTES_MAX, Piece, ReadAhead
from millstream.broker.network.sender import Sender
from millstream.storage import page_cache
from millstream.storage.files import DescriptorCache, LogFile, OsFileSystem
from millstream.storage.values import FileRange

MEGABYTE = 1 << 20
SIZE = 24 * MEGABYTE


class Disk:
    """A file of which only what was read is cached. Reads end when the test says so."""

    def __init__(self, folder: Path) -> None:
        path = folder / "0.log"
        self.data = os.urandom(MEGABYTE) * (SIZE // MEGABYTE)
        path.write_bytes(self.data)
        cache = DescriptorCache(OsFileSystem(), 10)
        self.file = LogFile(cache, str(path), size_bytes=SIZE, needs_sync=False)
        self.cached = bytearray(SIZE // page_cache._PAGE)
        self.reads: list[tuple[int, int]] = []
        self.failure: OSError | None = None
        self.waiting: list[tuple[Callable[[], bool], asyncio.Future[bool]]] = []
        self.tasks: list[asyncio.Task[None]] = []
        # Reads wait for `finish_one`.
        self.is_slow = False

    def is_cached(self, fd: int, position: int, length: int) -> bool:
        pages = self.cached[
            position // page_cache._PAGE : -(-(position + length) // page_cache._PAGE)
        ]
        return all(pages)

    def warm(self, fd: int, position: int, length: int) -> bool:
        if self.failure is not None:
            raise self.failure
        self.reads.append((position, position + length))
        if self.is_cached(fd, position, length):
            return False
        first, end = position // page_cache._PAGE, -(-(position + length) // page_cache._PAGE)
        self.cached[first:end] = b"\x01" * (end - first)
        return True

    def range(self, position: int, length: int) -> SendRange:
        return SendRange(FileRange(self.file, position, length))

    # What a connection needs from its server.

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(coroutine))

    def run_blocking(self, call: Callable[[], bool]) -> "asyncio.Future[bool]":
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.waiting.append((call, future))
        if not self.is_slow:
            self.finish_one()
        return future

    def finish_one(self) -> None:
        call, future = self.waiting.pop(0)
        try:
            future.set_result(call())
        except OSError as error:
            future.set_exception(error)

    async def settle(self) -> None:
        """Until all reads have ended; only while they end by themselves."""
        while pending := [task for task in self.tasks if not task.done()]:
            await asyncio.wait(pending)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk(tmp_path)
    monkeypatch.setattr(page_cache, "is_cached", made.is_cached)
    monkeypatch.setattr(page_cache, "warm", made.warm)
    return made


class Owner:
    """A connection, as far as its sender knows it."""

    def __init__(self, disk: Disk) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.sender = Sender(self, disk, self.ours, PlainOutput(self.ours))  # type: ignore[arg-type]
        self.closed_with: list[str | None] = []

    def flush(self) -> None:
        self.sender.flush()

    def close(self, reason: str | None = None) -> None:
        self.closed_with.append(reason)
        self.sender.close()

    def on_send_failed(self, error: OSError) -> None:
        self.close(str(error))

    def on_sent_everything(self) -> None:
        return

    async def receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            data += await asyncio.get_running_loop().sock_recv(self.theirs, count - len(data))
        return bytes(data)

    def end(self) -> None:
        self.sender.close()
        self.ours.close()
        self.theirs.close()


def send(owner: Owner, disk: Disk, position: int, length: int) -> None:
    if owner.sender.push([disk.range(position, length)]):
        owner.flush()


def test_a_cold_range_arrives_whole_and_the_next_are_read_before_they_are_asked_for(
    disk: Disk,
) -> None:
    async def scenario() -> None:
        owner = Owner(disk)
        for position in range(0, SIZE, MEGABYTE):
            send(owner, disk, position, MEGABYTE)
            assert await owner.receive(MEGABYTE) == disk.data[position : position + MEGABYTE]
            await disk.settle()
        owner.end()

    asyncio.run(scenario())
    assert disk.file.pins == 0
    # Each byte once, in order, and in pieces that are larger than the requests.
    assert [start for start, _ in disk.reads[1:]] == [end for _, end in disk.reads[:-1]]
    assert disk.reads[-1][1] == SIZE
    assert len(disk.reads) < SIZE // MEGABYTE


def test_a_range_larger_than_a_window_arrives_whole(disk: Disk) -> None:
    async def scenario() -> bytes:
        owner = Owner(disk)
        send(owner, disk, 100, SIZE - 200)
        data = await owner.receive(SIZE - 200)
        owner.end()
        return data

    assert asyncio.run(scenario()) == disk.data[100:-100]
    assert disk.file.pins == 0


def test_scattered_ranges_have_nothing_read_behind_them(disk: Disk) -> None:
    positions = [11 * MEGABYTE, 3 * MEGABYTE, 19 * MEGABYTE, 7 * MEGABYTE]

    async def scenario() -> None:
        owner = Owner(disk)
        for position in positions:
            send(owner, disk, position, 1000)
            await owner.receive(1000)
        owner.end()

    asyncio.run(scenario())
    assert disk.reads == [(position, position + 1000) for position in positions]


def test_never_more_is_read_ahead_than_twice_what_was_read_in_order(disk: Disk) -> None:
    async def scenario() -> None:
        owner = Owner(disk)
        for sent in range(1000, 50_000, 1000):
            send(owner, disk, sent - 1000, 1000)
            await owner.receive(1000)
            await disk.settle()
            assert max(end for _, end in disk.reads) <= 3 * sent
        owner.end()

    asyncio.run(scenario())


def test_a_client_that_does_not_receive_has_little_read_for_it(disk: Disk) -> None:
    async def scenario() -> None:
        owner = Owner(disk)
        for position in range(0, SIZE, 2 * MEGABYTE):
            send(owner, disk, position, 2 * MEGABYTE)
        await disk.settle()
        owner.end()

    asyncio.run(scenario())
    assert max(end for _, end in disk.reads) <= 4 * MEGABYTE + AHEAD_BYTES_MAX
    assert disk.file.pins == 0


def test_a_range_that_is_being_read_ahead_is_not_read_twice(disk: Disk) -> None:
    async def scenario() -> None:
        owner = Owner(disk)
        send(owner, disk, 0, MEGABYTE)
        await owner.receive(MEGABYTE)
        disk.is_slow = True
        # Already asked for, and then read on behind it, which the disk does not finish.
        send(owner, disk, MEGABYTE, MEGABYTE)
        await asyncio.sleep(0)
        disk.finish_one()
        await owner.receive(MEGABYTE)
        assert len(disk.waiting) == 1
        send(owner, disk, 2 * MEGABYTE, MEGABYTE)
        await asyncio.sleep(0)
        assert len(disk.waiting) == 1
        disk.finish_one()
        assert await owner.receive(MEGABYTE) == disk.data[2 * MEGABYTE : 3 * MEGABYTE]
        disk.is_slow = False
        owner.end()

    asyncio.run(scenario())
    starts = [start for start, _ in disk.reads]
    assert len(starts) == len(set(starts))


def test_a_failed_read_closes_the_connection(disk: Disk) -> None:
    async def scenario() -> list[str | None]:
        owner = Owner(disk)
        disk.failure = OSError(5, "Input/output error")
        send(owner, disk, 0, MEGABYTE)
        await disk.settle()
        owner.end()
        return owner.closed_with

    assert asyncio.run(scenario()) == ["log read failed: [Errno 5] Input/output error"]
    assert disk.file.pins == 0


def test_a_failed_read_ahead_is_met_again_by_the_reader_only(disk: Disk) -> None:
    async def scenario() -> None:
        owner = Owner(disk)
        disk.is_slow = True
        send(owner, disk, 0, 2 * MEGABYTE)
        await asyncio.sleep(0)
        disk.finish_one()
        await owner.receive(2 * MEGABYTE)
        send(owner, disk, 2 * MEGABYTE, MEGABYTE)
        await asyncio.sleep(0)
        disk.finish_one()
        await owner.receive(MEGABYTE)
        disk.failure = OSError(5, "Input/output error")
        disk.finish_one()
        await asyncio.sleep(0)
        assert owner.closed_with == []
        send(owner, disk, 3 * MEGABYTE, MEGABYTE)
        await asyncio.sleep(0)
        disk.finish_one()
        await asyncio.sleep(0)
        assert len(owner.closed_with) == 1
        owner.end()

    asyncio.run(scenario())
    assert disk.file.pins == 0


def test_a_connection_may_close_while_its_pieces_are_read(disk: Disk) -> None:
    async def scenario() -> None:
        owner = Owner(disk)
        disk.is_slow = True
        send(owner, disk, 0, MEGABYTE)
        await asyncio.sleep(0)
        owner.end()
        assert disk.file.pins == 1
        disk.finish_one()
        await disk.settle()

    asyncio.run(scenario())
    assert disk.file.pins == 0


def test_a_reader_that_reaches_what_is_in_memory_is_followed_no_more(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "_CACHED_PIECES_MAX", 8)

    async def scenario() -> None:
        owner = Owner(disk)
        send(owner, disk, 0, 100_000)
        await owner.receive(100_000)
        assert owner.sender.output.follow is not None
        disk.cached[:] = b"\x01" * len(disk.cached)
        for position in range(100_000, SIZE - 200_000, 100_000):
            send(owner, disk, position, 100_000)
            await owner.receive(100_000)
            await disk.settle()
        assert owner.sender.output.follow is None
        owner.end()

    asyncio.run(scenario())
    assert disk.file.pins == 0


def test_files_are_followed_each_by_itself_and_not_without_end(tmp_path: Path) -> None:
    disks = []
    for number in range(70):
        (tmp_path / str(number)).mkdir()
        path = tmp_path / str(number) / "0.log"
        path.write_bytes(b"")
        cache = DescriptorCache(OsFileSystem(), 100)
        disks.append(LogFile(cache, str(path), size_bytes=SIZE, needs_sync=False))
    ahead = ReadAhead(None, _ignore)  # type: ignore[arg-type]
    for file in disks:
        ahead.follow(SendRange(FileRange(file, 0, 1000)))
    assert list(ahead._runs) == disks[-64:]
    for file in disks:
        file.unpin()
        file.close()


def _ignore(piece: Piece, failure: OSError | None) -> None:
    return
