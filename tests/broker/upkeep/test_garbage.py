import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from millstream.broker.upkeep import garbage


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def old_garbage() -> "weakref.ref[Cycle]":
    """A cycle that only a full collection finds."""
    cycle = Cycle()
    found = weakref.ref(cycle)
    gc.collect()
    return found


def watch(monkeypatch: pytest.MonkeyPatch, is_busy: Callable[[], bool], checks: int) -> list[int]:
    """The checks after which a full collection was made."""
    done: list[int] = []
    count = 0

    async def sleep(seconds: float) -> None:
        nonlocal count
        count += 1
        if count > checks:
            raise asyncio.CancelledError

    collector = SimpleNamespace(
        get_count=lambda: (0, 0, 150),
        collect=lambda: done.append(count),
        freeze=lambda: None,
        unfreeze=lambda: None,
    )
    # Not in the modules themselves: other threads use them.
    monkeypatch.setattr(garbage, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(garbage, "gc", collector)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(garbage.collect_in_quiet_moments(is_busy))
    return done


def test_no_full_collection_happens_by_itself() -> None:
    garbage.stop_automatic_full_collections()
    found = old_garbage()
    kept = [Cycle() for _ in range(300_000)]
    assert found() is not None
    gc.collect()
    assert found() is None
    assert len(kept) == 300_000


def test_collects_when_no_large_request_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    assert watch(monkeypatch, lambda: False, checks=3) == [1, 2, 3]


def test_large_requests_put_a_collection_off_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert watch(monkeypatch, lambda: True, checks=30) == [13, 26]


def test_survivors_are_visited_again_only_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[weakref.ref[Cycle]] = []
    gone_at: list[int] = []
    checks = 0

    async def sleep(seconds: float) -> None:
        nonlocal checks
        checks += 1
        if checks == 2:
            # Frozen by the first collection, and garbage since.
            kept.clear()
        if found[0]() is None:
            gone_at.append(checks - 1)
            raise asyncio.CancelledError

    kept = [Cycle()]
    found.append(weakref.ref(kept[0]))
    collector = SimpleNamespace(
        get_count=lambda: (0, 0, 150),
        collect=gc.collect,
        freeze=gc.freeze,
        unfreeze=gc.unfreeze,
    )
    monkeypatch.setattr(garbage, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(garbage, "gc", collector)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(garbage.collect_in_quiet_moments(lambda: False))
    assert gone_at == [20]
