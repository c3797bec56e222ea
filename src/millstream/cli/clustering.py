"""`millstream cluster`: several nodes as one, on this machine."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

import click

from millstream.cli.advise import advise_command
from millstream.cli.cluster_view import describe_cluster
from millstream.cli.moving import adopt
from millstream.cli.node_process import NodeProcess
from millstream.cli.zookeeper import ZooKeeperServer, class_path

_REPLICAS_MAX: Final = 3
_MIN_ISR_MAX: Final = 2


@click.group()
def cluster() -> None:
    """Start, look at and size a cluster of several nodes."""


cluster.add_command(adopt)
cluster.add_command(advise_command)
cluster.add_command(describe_cluster)


@cluster.command()
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(1, 20))
@click.option(
    "--data-dir", type=click.Path(path_type=Path), required=True, help="A folder for each node."
)
@click.option("--zookeeper", metavar="HOST:PORT", help="Use this ZooKeeper instead of a new one.")
@click.option("--set", "sets", multiple=True, metavar="NAME=VALUE", help="Set an option of all.")
@click.option("--dev", is_flag=True, help="Answer acks=all without waiting for the disk.")
def start(
    nodes: int, data_dir: Path, zookeeper: str | None, sets: tuple[str, ...], dev: bool
) -> None:
    """Run ZooKeeper and some nodes on free ports of this machine, until SIGTERM or Ctrl-C.

    Prints `bootstrap HOST:PORT,...` when clients can connect. New topics get three replicas,
    or one for each node where there are fewer; so do those of groups and
    transactions. ZooKeeper needs Java, and PySpark (`pip install 'millstream[spark]'`) or
    Debian's package zookeeper.
    """
    stopped = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    with contextlib.ExitStack() as running:
        if zookeeper is None:
            zookeeper = running.enter_context(_zookeeper(data_dir / "zookeeper"))
        options = [
            *("--set", f"zookeeper.connect={zookeeper}"),
            *_replica_options(nodes),
            *(word for each in sets for word in ("--set", each)),
            *(["--dev"] if dev else []),
        ]
        started = [NodeProcess(data_dir, number, options) for number in range(1, nodes + 1)]
        running.callback(_stop_all, started)
        for node in started:
            node.start()
        click.echo(f"bootstrap {','.join(node.wait() for node in started)}")
        stopped.wait()


def _replica_options(nodes: int) -> list[str]:
    replicas = min(nodes, _REPLICAS_MAX)
    settings = {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min(replicas, _MIN_ISR_MAX),
    }
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


@contextlib.contextmanager
def _zookeeper(folder: Path) -> Iterator[str]:
    server = ZooKeeperServer(folder)
    server.start(class_path())
    try:
        yield server.address
    finally:
        server.stop()


def _stop_all(nodes: list[NodeProcess]) -> None:
    for node in nodes:
        node.ask_to_stop()
    for node in nodes:
        node.wait_stopped()
