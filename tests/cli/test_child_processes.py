"""Processes that end by themselves are named and started again."""

import queue
import threading
from pathlib import Path

import pytest

from millstream.cli import child_processes as watching
from millstream.cli.child_processes import Watch, ending
from millstream.cli.failure import CommandFailed


class Process:
    """Ends when it is told to, with a code; starts as often as it is asked."""

    name = "node 2"
    log_path = Path("node-2.log")

    def __init__(self, *, comes_up: bool = True) -> None:
        self.endings: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.started: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._comes_up = comes_up

    def wait_ended(self) -> int:
        return self.endings.get()

    def start(self) -> None:
        self.started.put(True)

    def wait_serving(self) -> str:
        if not self._comes_up:
            raise CommandFailed("node 2 did not start")
        return "127.0.0.1:9092"


class Said:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        monkeypatch.setattr(watching, "_say", self.lines.put)

    def next(self) -> str:
        return self.lines.get(timeout=20)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    return Said(monkeypatch)


def test_one_that_ends_is_named_with_its_log_and_comes_back(said: Said) -> None:
    process, watch = Process(), Watch(restarts=True, pause_seconds=0.0)
    watch.over(process)
    process.endings.put(-9)
    assert said.next() == ("node 2 exited (SIGKILL), its log is node-2.log; restarting it in 0 s")
    assert said.next() == "node 2 is back at 127.0.0.1:9092"
    process.endings.put(1)
    assert "exited (exit code 1)" in said.next()
    watch.stop()


def test_one_that_does_not_come_up_is_tried_again(said: Said) -> None:
    process, watch = Process(comes_up=False), Watch(restarts=True, pause_seconds=0.0)
    watch.over(process)
    for _ in range(3):
        process.endings.put(1)
        assert "exited" in said.next()
        assert process.started.get(timeout=20)
    watch.stop()


def test_without_restarts_it_is_only_named(said: Said) -> None:
    process, watch = Process(), Watch(restarts=False)
    watch.over(process)
    process.endings.put(0)
    assert said.next() == "node 2 exited (exit code 0), its log is node-2.log"
    join(watch)
    assert process.started.empty()


def test_who_is_stopped_is_not_named(said: Said) -> None:
    process, watch = Process(), Watch(restarts=True, pause_seconds=0.0)
    watch.over(process)
    watch.stop()
    process.endings.put(-15)
    join(watch)
    assert said.lines.empty()
    assert process.started.empty()


def join(watch: Watch) -> None:
    for thread in watch._threads:
        assert isinstance(thread, threading.Thread)
        thread.join(20)
        assert not thread.is_alive()


def test_a_signal_has_its_name() -> None:
    assert [ending(code) for code in (0, 7, -15, -99)] == [
        "exit code 0",
        "exit code 7",
        "SIGTERM",
        "signal 99",
    ]
