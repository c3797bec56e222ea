"""`millstream broker`: run a node until SIGTERM or Ctrl-C."""

import asyncio
import logging
import signal
import sys
from pathlib import Path

import click

from millstream.config import BrokerConfig, load_config


@click.command()
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the data is (log.dirs).")
@click.option("--listen", metavar="HOST:PORT", help="Address to listen on; port 0 picks one.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="TOML, or Kafka's server.properties.",
)
@click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="Set one option.")
@click.option("--dev", is_flag=True, help="Answer acks=all without waiting for the disk.")
@click.option("--adopt", is_flag=True, help="Take over a data directory of Apache Kafka.")
def broker(
    data_dir: Path | None,
    listen: str | None,
    config_file: Path | None,
    sets: tuple[str, ...],
    dev: bool,
    adopt: bool,
) -> None:
    """Run a node. Flags go before --set, --set before the file, the file before defaults.

    Prints `listening on HOST:PORT` when clients can connect.
    """
    flags: dict[str, str] = {}
    if data_dir is not None:
        flags["log.dirs"] = str(data_dir)
    if listen is not None:
        flags["listeners"] = f"PLAINTEXT://{listen}"
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    config = load_config(file=config_file, sets=sets, flags=flags)
    for note in config.notes:
        logging.getLogger(__name__).warning(note)
    _raise_descriptor_limit()
    _import_schemas()
    asyncio.run(_serve(config, dev=dev, adopt=adopt))


def _raise_descriptor_limit() -> None:
    """Up to what the system allows: every connection and every open segment is one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _import_schemas() -> None:
    """Import kio without hypothesis, to which it registers strategies where it is installed.

    That takes longer than all the rest of the start, and no node needs it. Here is the
    place: later there are other threads, which may want hypothesis themselves.
    """
    is_blocked = "hypothesis" not in sys.modules
    if is_blocked:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]  # "not installed"
    import kio.static.primitive  # noqa: F401

    if is_blocked:
        del sys.modules["hypothesis"]


async def _serve(config: BrokerConfig, *, dev: bool, adopt: bool) -> None:
    from millstream.broker.broker import Broker

    node = Broker(config, dev=dev, adopt=adopt)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await node.start()
    for endpoint in node.endpoints:
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        print(f"listening on {host or '0.0.0.0'}:{endpoint.port}", flush=True)
    await stop.wait()
    await node.stop()
