"""`millstream run`: a node for as long as one command runs, such as a test suite."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.log_format import write_warnings
from millstream.cli.node_main import addresses, local_config, local_node_options, run_node
from millstream.cli.output import echo

if TYPE_CHECKING:
    from millstream.broker.broker import Broker


@click.command("run", context_settings={"ignore_unknown_options": True})
@click.option(
    "-t", "--topic", "topics", multiple=True, metavar="NAME[:PARTITIONS]", help="Create a topic."
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default: a free one.")
@local_node_options
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def run(
    topics: tuple[str, ...],
    data_dir: Path | None,
    port: int,
    sets: tuple[str, ...],
    command: tuple[str, ...],
) -> int:
    """Start a node, run COMMAND, stop the node, and exit with the command's exit code.

    The command finds the address in KAFKA_BOOTSTRAP_SERVERS and MILLSTREAM_BOOTSTRAP. SIGTERM,
    SIGINT and SIGHUP are passed on to it. As in a shell, the exit code is 128 + N if signal N ended
    it, 127 if there is no such command, 126 if it may not be executed.

    Example: millstream run --topic orders:3 -- npm test
    """
    wanted = dict(parse_topic(text) for text in topics)
    write_warnings("millstream: %(message)s")
    with local_config(data_dir, port, sets) as (_, config):
        # Unless the command has its turn: a signal came before it.
        exit_code = int(ExitCode.INTERRUPTED)

        async def while_serving(node: "Broker", stop: asyncio.Event) -> int:
            nonlocal exit_code
            bootstrap = addresses(node)[0]
            if wanted:
                await asyncio.to_thread(_create_topics, bootstrap, wanted)
            if not stop.is_set():
                exit_code = await _run_command(command, bootstrap)
            return exit_code

        run_node(config, while_serving, dev=True)
        return exit_code


def parse_topic(text: str) -> tuple[str, int]:
    """`orders` or `orders:3`."""
    name, _, count = text.partition(":")
    if not name or not (count or "1").isdecimal() or int(count or 1) < 1:
        raise click.UsageError(f"--topic takes NAME or NAME:PARTITIONS, not {text!r}")
    return name, int(count or 1)


def _create_topics(bootstrap: str, topics: dict[str, int]) -> None:
    from millstream.cli.connection import Cluster
    from millstream.cli.example_topic import create_topics

    with Cluster(bootstrap) as cluster:
        create_topics(cluster, topics)


# As shells report them.
_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126
_SIGNALLED: Final = 128


async def _run_command(command: tuple[str, ...], bootstrap: str) -> int:
    environment = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
        "MILLSTREAM_BOOTSTRAP": bootstrap,
    }
    # From before it starts: it may run before we know of it.
    with _kept_signals() as signals:
        try:
            process = await asyncio.create_subprocess_exec(*command, env=environment)
        except FileNotFoundError:
            echo(f"millstream: {command[0]}: command not found", err=True)
            return _NOT_FOUND
        except PermissionError:
            echo(f"millstream: {command[0]}: permission denied", err=True)
            return _NOT_EXECUTABLE
        except OSError as failed:
            raise CommandFailed(f"{command[0]}: {failed.strerror}") from None
        passing = asyncio.ensure_future(_pass_on(signals, process))
        code = await process.wait()
        passing.cancel()
    # Python reports signal N as -N.
    return _SIGNALLED - code if code < 0 else code


async def _pass_on(signals: "asyncio.Queue[int]", process: asyncio.subprocess.Process) -> None:
    while True:
        number = await signals.get()
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)


@contextlib.contextmanager
def _kept_signals() -> Iterator["asyncio.Queue[int]"]:
    """SIGTERM and Ctrl-C are for the command; the node stops when the command has ended."""
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[int] = asyncio.Queue()
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        # A terminal sends Ctrl-C to the command, too: once is enough for most, twice harms few.
        signal.signal(number, lambda got, frame: loop.call_soon_threadsafe(signals.put_nowait, got))
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
