"""`millstream broker`: run a node until SIGTERM or Ctrl-C."""

import asyncio
import gc
import logging
import re
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from millstream.config import BrokerConfig, load_config

if TYPE_CHECKING:
    from millstream.broker.broker import Broker


@click.command()
@click.option("--data-dir", type=click.Path(), help="The data directory (log.dirs).")
@click.option(
    "--listen", metavar="HOST:PORT", help="Address to listen on; port 0 picks a free one."
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="A config file: TOML, or Kafka's server.properties.",
)
@click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="Set one option.")
@click.option("--dev", is_flag=True, help="Answer acks=all without waiting for the disk.")
@click.option("--adopt", is_flag=True, help="Adopt a data directory of Apache Kafka.")
def broker(
    data_dir: str | None,
    listen: str | None,
    config_file: Path | None,
    sets: tuple[str, ...],
    dev: bool,
    adopt: bool,
) -> None:
    """Run a node. Precedence: flags, then --set, then the config file, then defaults.

    Prints `listening on HOST:PORT` when clients can connect.
    """
    flags: dict[str, str] = {}
    if data_dir == "":
        # Probably an unset variable in a script: the current directory is not what was meant.
        raise click.UsageError("--data-dir is empty")
    if data_dir is not None:
        flags["log.dirs"] = str(Path(data_dir))
    if listen is not None:
        if not re.fullmatch(r"(\[[^\]]*\]|[^:/,\s]*):\d{1,5}", listen):
            raise click.UsageError(f"--listen takes HOST:PORT, not {listen!r}")
        flags["listeners"] = f"PLAINTEXT://{listen}"
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    config = load_config(file=config_file, sets=sets, flags=flags)
    for note in config.notes:
        logging.getLogger(__name__).warning(note)
    _raise_descriptor_limit()
    _run(_serve(config, dev=dev, adopt=adopt))


def _run(main: Coroutine[Any, Any, None]) -> None:
    """Uses uvloop if it is installed: round trips over many connections cost a fifth less."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def _raise_descriptor_limit() -> None:
    """Raise the limit of open files: every connection and every open segment needs one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


_THREAD_SECONDS: Final = 0.0002
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


def _stop_on_signals(stop: asyncio.Event) -> None:
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


async def _start(node: "Broker", stop: asyncio.Event) -> bool:
    """False if it was stopped first: in a cluster a start may have to wait for other nodes."""
    starting = asyncio.ensure_future(node.start())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return False
    await starting
    return True


def _take_over_from_python(node: "Broker") -> "asyncio.Task[None]":
    """What the process decides for itself because a node is all it runs."""
    from millstream.broker.upkeep.garbage import (
        collect_in_quiet_moments,
        stop_automatic_full_collections,
    )

    # A thread that computes keeps the loop waiting this long after each of its system calls.
    sys.setswitchinterval(_THREAD_SECONDS)
    # What the start created lives until the end: the collector need not scan it again.
    gc.freeze()
    stop_automatic_full_collections()
    return asyncio.ensure_future(collect_in_quiet_moments(node.services.turns.is_busy))


async def _serve(config: BrokerConfig, *, dev: bool, adopt: bool) -> None:
    from millstream.broker.broker import Broker

    node = Broker(config, dev=dev, adopt=adopt)
    stop = asyncio.Event()
    _stop_on_signals(stop)
    if not await _start(node, stop):
        return
    collecting = _take_over_from_python(node)
    for endpoint in node.endpoints:
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        print(f"listening on {host or '0.0.0.0'}:{endpoint.port}", flush=True)
    await stop.wait()
    collecting.cancel()
    await node.stop()
    for number in _STOPPING:
        # Python's own exit keeps this handler, but not ours.
        signal.signal(number, signal.SIG_IGN)
