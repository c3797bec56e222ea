"""`millstream dev`: a node to try things on, with an example topic."""

import asyncio
import contextlib
import json
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from millstream.cli.node_main import addresses, run_node
from millstream.cli.output import echo
from millstream.config import load_config
from millstream.config.load import refuse_secrets

if TYPE_CHECKING:
    from millstream.broker.broker import Broker

DEFAULT_PORT: Final = 9092


@click.command("dev")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the data here.  [default: a temporary directory, removed at the end]",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="0 picks a free one.",
)
@click.option("--no-example", is_flag=True, help="Do not create the example topic.")
@click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="Set one option.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON when it is ready.")
def dev(
    data_dir: Path | None, port: int, no_example: bool, sets: tuple[str, ...], as_json: bool
) -> int:
    """Run a node on this machine for development, until Ctrl-C.

    It answers acks=all before the data is on the disk: this is faster, and a power cut loses
    the last moments. Use `millstream broker` where data matters.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")
    with contextlib.ExitStack() as cleanup:
        folder = data_dir or Path(
            cleanup.enter_context(tempfile.TemporaryDirectory(prefix="millstream-dev-"))
        )
        refuse_secrets(sets)
        config = load_config(
            sets=sets,
            flags={"log.dirs": str(folder), "listeners": f"PLAINTEXT://127.0.0.1:{port}"},
        )

        async def while_serving(node: "Broker", stop: asyncio.Event) -> int:
            bootstrap = addresses(node)[0]
            if not no_example:
                await asyncio.to_thread(_create_example, bootstrap)
            if as_json:
                print(json.dumps({"bootstrap": bootstrap, "data_dir": str(folder)}), flush=True)
            else:
                print(f"listening on {bootstrap}", flush=True)
                _tell_next_steps(bootstrap, folder, is_kept=data_dir is not None)
            await stop.wait()
            return 0

        return run_node(config, while_serving, dev=True)


def _create_example(bootstrap: str) -> None:
    from millstream.cli.example_topic import create_example

    create_example(bootstrap, now_ms=time.time_ns() // 1_000_000)


def _tell_next_steps(bootstrap: str, folder: Path, *, is_kept: bool) -> None:
    is_default = bootstrap == f"127.0.0.1:{DEFAULT_PORT}"
    where = "" if is_default else f" -b {bootstrap}"
    kept = "kept" if is_kept else "removed at the end"
    echo(
        f"""
Data is in {folder} ({kept}). In another terminal, try:

  millstream consume example -e{where}
  echo 'hello' | millstream produce example{where}
  millstream topic describe example{where}
  millstream storage segments {folder}

Any Kafka client works with bootstrap.servers={bootstrap}. Ctrl-C stops the node.""",
        err=True,
    )
