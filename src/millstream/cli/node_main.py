"""A node as what this process runs: for `broker`, `dev` and `run`."""

import asyncio
import gc
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from millstream.cli.serving_loop import ignore_signals, run_loop, stop_on_signals
from millstream.config import BrokerConfig, load_config
from millstream.config.load import refuse_secrets

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

F = TypeVar("F", bound=Callable[..., object])

_THREAD_SECONDS: Final = 0.0002

# What happens while the node serves; it ends when this does, soon after the event at the latest.
# Its result is the exit code.
WhileServing = Callable[["Broker", asyncio.Event], Awaitable[int]]


def run_node(
    config: BrokerConfig, while_serving: WhileServing, *, dev: bool, adopt: bool = False
) -> int:
    """Start a node, serve until SIGTERM, Ctrl-C or the end of `while_serving`, and stop it.

    Raises StartError."""
    _raise_descriptor_limit()
    return run_loop(_serve(config, while_serving, dev=dev, adopt=adopt))


def local_node_options(command: F) -> F:
    """Add `--data-dir` and `--set` to a command with a node for this machine alone."""
    command = click.option(
        "--set", "sets", multiple=True, metavar="NAME=VALUE", help="Set one option."
    )(command)
    return click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        help="Keep the data here.  [default: a temporary directory, removed at the end]",
    )(command)


@contextmanager
def local_config(
    data_dir: Path | None, port: int, sets: tuple[str, ...]
) -> Iterator[tuple[Path, BrokerConfig]]:
    """The directory and the options of such a node. A temporary directory lasts as long as this."""
    refuse_secrets(sets)
    with (
        tempfile.TemporaryDirectory(prefix="millstream-")
        if data_dir is None
        else nullcontext(data_dir)
    ) as folder:
        flags = {"log.dirs": str(folder), "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        yield Path(folder), load_config(sets=sets, flags=flags)


def addresses(node: "Broker") -> list[str]:
    """Where a node listens, as clients on this machine reach it."""
    found = []
    for endpoint in node.endpoints:
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        found.append(f"{host or '0.0.0.0'}:{endpoint.port}")
    return found


def _raise_descriptor_limit() -> None:
    """Raise the limit of open files: every connection and every open segment needs one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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


async def _serve(
    config: BrokerConfig, while_serving: WhileServing, *, dev: bool, adopt: bool
) -> int:
    from millstream.broker.broker import Broker
    from millstream.broker.upkeep.allocator import keep_little_memory

    keep_little_memory()
    node = Broker(config, dev=dev, adopt=adopt)
    stop = asyncio.Event()
    stop_on_signals(stop)
    if not await _start(node, stop):
        return 0
    collecting = _take_over_from_python(node)
    try:
        return await while_serving(node, stop)
    finally:
        collecting.cancel()
        await node.stop()
        ignore_signals()
