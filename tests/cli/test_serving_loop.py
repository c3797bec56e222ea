import asyncio
import os
import signal

from millstream.cli.serving_loop import ignore_signals, run_loop, stop_on_signals


def test_a_signal_stops_what_is_served_and_a_second_one_is_harmless() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    async def serve() -> None:
        stop = asyncio.Event()
        stop_on_signals(stop)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), 30)

    try:
        run_loop(serve())
        # The loop is closed: its handler must not fail.
        os.kill(os.getpid(), signal.SIGTERM)
        ignore_signals()
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
