"""The throttle of a round, and the child process that runs large ones."""

import asyncio
import itertools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from millstream.broker.upkeep import compaction_worker
from millstream.broker.upkeep.compaction_worker import (
    RestingThrottle,
    Stopped,
    Throttle,
    rest_seconds,
    run_round,
)
from millstream.model import TopicPartition
from millstream.records.columns import COMPILED, PURE, Implementation
from millstream.storage.compaction_plan import plan_round
from millstream.storage.compaction_round import CannotCompact, CleanedSegment, Round
from millstream.storage.files import DescriptorCache, OsFileSystem
from millstream.storage.log import Log
from millstream.storage.recovery import recover_log
from tests.storage.compacted_logs import CONFIG, LIMITS, fill
from tests.storage.logs import CLEAN, NOW_MS

BOTH = [pytest.param(PURE, id="pure"), pytest.param(COMPILED, id="compiled")]
NO_LIMIT = 1e15


def filled_log(directory: Path) -> Log:
    directory.mkdir()
    log = recover_log(
        str(directory),
        TopicPartition("t", 0),
        CONFIG,
        CLEAN,
        cache=DescriptorCache(OsFileSystem(), 100),
        device=1,
        report=print,
    )
    fill(log, 30)
    log.finish()
    return log


@pytest.fixture
def planned(tmp_path: Path) -> Round:
    log = filled_log(tmp_path / "t-0")
    found = plan_round(log, LIMITS, cleaned_offset=None, now_ms=NOW_MS)
    log.close()
    assert found is not None
    return found


async def collect(what: Round, throttle: Throttle) -> list[CleanedSegment]:
    return [segment async for segment in run_round(what, throttle)]


def test_a_throttle_keeps_to_its_rate() -> None:
    throttle = Throttle(1_000_000)
    began = time.monotonic()
    for _ in range(5):
        throttle(10_000)
    assert time.monotonic() - began >= 0.045
    assert throttle.moved_bytes == 50_000


def test_a_throttle_ends_a_round_at_once() -> None:
    throttle = Throttle(1)
    throttle.stop()
    began = time.monotonic()
    with pytest.raises(Stopped):
        throttle(1 << 30)
    assert time.monotonic() - began < 5


class Waits(Throttle):
    """Has no limit, and does not wait."""

    def __init__(self) -> None:
        super().__init__(NO_LIMIT)
        self.asked: list[float] = []

    def wait(self, seconds: float) -> None:
        if seconds > 0:
            self.asked.append(seconds)


def test_a_turn_is_followed_by_a_longer_rest_only_beside_a_loop_in_use() -> None:
    assert rest_seconds(0.002, loop_share=0.5) > 0.002
    assert rest_seconds(0.002, loop_share=0.001) == 0


@pytest.mark.parametrize(("cpu_seconds", "rests"), [(1e9, 3), (0.0, 0)])
def test_the_thread_rests_while_the_loop_uses_cpu(
    cpu_seconds: float, rests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_worker, "_TURN_SECONDS", 0.0)
    used = itertools.count()
    throttle = Waits()
    turns = RestingThrottle(throttle, lambda: next(used) * cpu_seconds)
    for _ in range(3):
        turns(1000)
    assert len(throttle.asked) == rests
    assert throttle.moved_bytes == 3000


def test_thread_and_child_write_the_same_files(
    planned: Round, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    for implementation, in_thread_bytes_max in ((COMPILED, 1 << 30), (COMPILED, 0), (PURE, 0)):
        monkeypatch.setattr(compaction_worker, "IMPLEMENTATION", implementation)
        monkeypatch.setattr(compaction_worker, "IN_THREAD_BYTES_MAX", in_thread_bytes_max)
        segments = asyncio.run(collect(planned, Throttle(NO_LIMIT)))
        files = sorted(Path(planned.directory).glob("*.cleaned"))
        written.append((segments, {file.name: file.read_bytes() for file in files}))
    assert len(written[0][0]) > 1
    assert written[0] == written[1] == written[2]


def test_a_child_ends_with_its_node(planned: Round) -> None:
    command = [sys.executable, "-m", "millstream.broker.upkeep.compaction_worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        # So slow that it is in the middle of its first segment.
        task = [planned.to_plain(), 1.0, PURE.NAME]
        child.stdin.write(json.dumps(task).encode() + b"\n")
        child.stdin.close()
        assert child.wait(60) == 1
        assert child.stdout.read() == b""


def test_a_child_does_not_end_by_signals_that_are_meant_for_its_node(planned: Round) -> None:
    """Ctrl-C, and a service manager that stops every process of a service."""
    command = [sys.executable, "-m", "millstream.broker.upkeep.compaction_worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        task = [planned.to_plain(), NO_LIMIT, PURE.NAME]
        child.stdin.write(json.dumps(task).encode() + b"\n")
        child.stdin.flush()
        assert json.loads(child.stdout.readline())[0] == "segment"
        for number in (signal.SIGINT, signal.SIGTERM):
            child.send_signal(number)
        child.stdin.write(b"\n")
        child.stdin.flush()
        assert json.loads(child.stdout.readline() or "[0]")[0] == "segment"


# In a thread, and in a child.
@pytest.mark.parametrize("implementation", BOTH)
def test_damage_and_missing_files_are_told(
    planned: Round, implementation: Implementation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_worker, "IMPLEMENTATION", implementation)
    path = Path(planned.directory) / f"{planned.spans[1].base_offset:020d}.log"
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    with pytest.raises(CannotCompact, match=path.name):
        asyncio.run(collect(planned, Throttle(NO_LIMIT)))
    path.unlink()
    with pytest.raises(FileNotFoundError):
        asyncio.run(collect(planned, Throttle(NO_LIMIT)))


@pytest.mark.parametrize("implementation", BOTH)
def test_a_round_that_is_left_early_ends(
    planned: Round, implementation: Implementation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction_worker, "IMPLEMENTATION", implementation)

    async def first_only() -> CleanedSegment:
        segments = run_round(planned, Throttle(NO_LIMIT))
        async for segment in segments:
            await segments.aclose()
            return segment
        raise AssertionError("the round is empty")

    assert asyncio.run(first_only()).base_offset == 0
    # The second segment was never asked for.
    assert len(list(Path(planned.directory).glob("*.log.cleaned"))) <= 2
