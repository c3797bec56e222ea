"""The event loop of a command that serves until a signal stops it."""

import asyncio
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, Final, TypeVar

T = TypeVar("T")

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """Uses uvloop if it is installed: round trips over many connections cost a fifth less."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def stop_on_signals(stop: asyncio.Event) -> None:
    """SIGTERM and Ctrl-C set `stop`.

    Not with the loop's own handlers, which end with the loop: a second signal would then kill
    a node that has stopped cleanly and is about to exit.
    """
    loop = asyncio.get_running_loop()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)

    for number in _STOPPING:
        signal.signal(number, on_signal)


def ignore_signals() -> None:
    """Everything has stopped: a second signal must not kill the exit."""
    for number in _STOPPING:
        # Python's own exit keeps this handler, but not ours.
        signal.signal(number, signal.SIG_IGN)
