"""`millstream broker`: run a node until SIGTERM or Ctrl-C."""

import asyncio
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from millstream.cli.bootstrap import json_option
from millstream.cli.console import (
    certificate_option,
    console_beside,
    login_option,
    pipeline_option,
)
from millstream.cli.log_format import log_format_option, write_log
from millstream.cli.node_main import addresses, run_node
from millstream.cli.output import print_line_json
from millstream.config import load_config
from millstream.config.load import refuse_secrets

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
@click.option(
    "--console",
    metavar="HOST:PORT",
    help="Serve the web console there; port 0 picks a free one. An address that other machines"
    " reach needs --console-login and --console-certificate.",
)
@click.option("--console-read-only", is_flag=True, help="The console changes nothing.")
@click.option(
    "--console-config",
    type=click.Path(path_type=Path),
    help="Client options with which the console logs in to this node's first listener.",
)
@login_option("--console-login")
@certificate_option("--console-certificate")
@click.option(
    "--console-registry",
    metavar="URL",
    help="The schema registry that the console decodes records with.",
)
@pipeline_option
@click.option("--adopt", is_flag=True, help="Adopt a data directory of Apache Kafka.")
@log_format_option
@json_option
def broker(
    data_dir: str | None,
    listen: str | None,
    config_file: Path | None,
    sets: tuple[str, ...],
    dev: bool,
    console: str | None,
    console_read_only: bool,
    console_config: Path | None,
    console_login: bool,
    console_certificate: Path | None,
    console_registry: str | None,
    pipeline_home: Path | None,
    adopt: bool,
    log_format: str,
    as_json: bool,
) -> None:
    """Run a node. Precedence: flags, then --set, then the config file, then defaults.

    Prints `listening on HOST:PORT` when clients can connect, and `console on URL`.
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
    write_log(log_format)
    refuse_secrets(sets)
    config = load_config(file=config_file, sets=sets, flags=flags)
    for note in config.notes:
        logging.getLogger(__name__).warning(note)
    beside = console_beside(
        "--console",
        console,
        is_read_only=console_read_only,
        pipeline_home=pipeline_home,
        client_file=console_config,
        login=console_login,
        certificate=console_certificate,
        registry_url=console_registry,
    )

    async def while_serving(node: "Broker", stop: asyncio.Event) -> int:
        for address in addresses(node) if not as_json else ():
            print(f"listening on {address}", flush=True)
        async with beside(node) as url:
            if as_json:
                print_line_json({"listeners": addresses(node), "console": url})
            elif url is not None:
                print(f"console on {url}", flush=True)
            await stop.wait()
        return 0

    run_node(config, while_serving, dev=dev, adopt=adopt)
