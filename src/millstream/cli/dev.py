"""`millstream dev`: a node to try things on, with an example topic."""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from millstream.cli.failure import CommandFailed
from millstream.cli.log_format import write_warnings
from millstream.cli.node_main import addresses, local_config, local_node_options, run_node
from millstream.cli.output import echo, print_line_json
from millstream.errors import StartError

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

DEFAULT_PORT: Final = 9092
DEFAULT_CONSOLE_PORT: Final = 8080
DEFAULT_REGISTRY_PORT: Final = 8081


@click.command("dev")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="0 picks a free one.",
)
@click.option(
    "--console-port",
    type=click.IntRange(0, 65535),
    help=f"Of the web console, if it is installed.  [default: {DEFAULT_CONSOLE_PORT} if free]",
)
@click.option("--no-console", is_flag=True, help="Do not serve the web console.")
@click.option(
    "--registry-port",
    type=click.IntRange(0, 65535),
    help=f"Of the schema registry, if it is installed.  [default: {DEFAULT_REGISTRY_PORT} if free]",
)
@click.option("--no-registry", is_flag=True, help="Do not serve the schema registry.")
@click.option("--no-example", is_flag=True, help="Do not create the example topic.")
@local_node_options
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON when it is ready.")
def dev(
    data_dir: Path | None,
    port: int,
    console_port: int | None,
    no_console: bool,
    registry_port: int | None,
    no_registry: bool,
    no_example: bool,
    sets: tuple[str, ...],
    as_json: bool,
) -> int:
    """Run a node on this machine for development, until Ctrl-C.

    It answers acks=all before the data is on the disk: this is faster, and a power cut loses
    the last moments. Use `millstream broker` where data matters.
    """
    write_warnings("%(message)s")
    with local_config(data_dir, port, sets) as (folder, config):

        async def while_serving(node: "Broker", stop: asyncio.Event) -> int:
            bootstrap = addresses(node)[0]
            if not no_example:
                await asyncio.to_thread(_create_example, bootstrap)
            if not as_json:
                # Before the console: its libraries take longer to load than the node to start.
                print(f"listening on {bootstrap}", flush=True)
            async with contextlib.AsyncExitStack() as beside:
                registry = None
                if not no_registry:
                    registry = _begin_registry(beside, bootstrap, registry_port, stop)
                url = None
                if not no_console:
                    url = await _serve_console(beside, node, console_port, registry)
                if as_json:
                    urls = {"console": url, "registry": registry}
                    print_line_json({"bootstrap": bootstrap, **urls, "data_dir": str(folder)})
                else:
                    console = "" if no_console else _console_text(url)
                    if registry is not None:
                        console = f"{console} Schema registry: {registry}".strip()
                    first = "topic create example" if no_example else "consume example -e"
                    _tell_next_steps(
                        bootstrap, console, folder, first=first, is_kept=data_dir is not None
                    )
                await stop.wait()
            return 0

        return run_node(config, while_serving, dev=True)


def _create_example(bootstrap: str) -> None:
    from millstream.cli.example_topic import create_example

    create_example(bootstrap, now_ms=time.time_ns() // 1_000_000)


async def _serve_console(
    beside: contextlib.AsyncExitStack, node: "Broker", port: int | None, registry: str | None
) -> str | None:
    """Its URL; None if its libraries are not installed. Raises StartError for a port in use."""
    from millstream.cli.console import console_beside, import_serving

    try:
        await asyncio.to_thread(import_serving)
    except CommandFailed:
        return None
    # A port that nobody asked for may be in use: then any other is as good.
    choices = [DEFAULT_CONSOLE_PORT, 0] if port is None else [port]
    for choice in choices:
        listen = f"127.0.0.1:{choice}"
        console = console_beside("--console-port", listen, registry_url=registry)
        try:
            return await beside.enter_async_context(console(node))
        except StartError:
            if choice == choices[-1]:
                raise
    raise AssertionError("one of the choices was taken or failed")


def _begin_registry(
    beside: contextlib.AsyncExitStack, bootstrap: str, port: int | None, stop: asyncio.Event
) -> str | None:
    """Its URL, at once: it gets ready behind its socket. None if its libraries are not installed.

    Raises StartError for a port in use."""
    from millstream.cli.registry import is_installed, serve_beside
    from millstream.registry.sockets import listen_on, local_url

    if not is_installed():
        return None
    try:
        bound = listen_on("127.0.0.1", DEFAULT_REGISTRY_PORT if port is None else port)
    except StartError:
        if port is not None:
            raise
        bound = listen_on("127.0.0.1", 0)
    # The address first: a socket that is closed has none.
    url = local_url(bound)

    async def serve() -> None:
        try:
            await serve_beside(bound, bootstrap, stop)
        except StartError as failed:
            echo(f"millstream: the schema registry did not start: {failed}", err=True)

    serving = asyncio.get_running_loop().create_task(serve())

    async def end() -> None:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    beside.push_async_callback(end)
    return url


def _console_text(url: str | None) -> str:
    return f"Console: {url}" if url else "A web console: pip install 'millstream[console]'"


def _tell_next_steps(
    bootstrap: str, console: str, folder: Path, *, first: str, is_kept: bool
) -> None:
    is_default = bootstrap == f"127.0.0.1:{DEFAULT_PORT}"
    where = "" if is_default else f" -b {bootstrap}"
    kept = "kept" if is_kept else "removed at the end"
    echo(
        f"""
Data is in {folder} ({kept}). {console}
In another terminal, try:

  millstream {first}{where}
  echo 'hello' | millstream produce example{where}
  millstream topic describe example{where}
  millstream storage segments {folder}

Any Kafka client works with bootstrap.servers={bootstrap}. Ctrl-C stops the node.""",
        err=True,
    )
