"""`millstream cluster`: several nodes as one, on this machine."""

import contextlib
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

import click

from millstream.cli.failure import CommandFailed
from millstream.cli.moving import adopt
from millstream.cli.zookeeper import ZooKeeperServer, class_path, die_with_parent

_STOP_SECONDS_MAX: Final = 60.0
_REPLICAS_MAX: Final = 3


@click.group()
def cluster() -> None:
    """Run several nodes as one cluster."""


cluster.add_command(adopt)


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
    or one for each node where there are fewer. ZooKeeper needs Java, and PySpark
    (`pip install 'millstream[spark]'`) or Debian's package zookeeper.
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
            *("--set", f"default.replication.factor={min(nodes, _REPLICAS_MAX)}"),
            *(word for each in sets for word in ("--set", each)),
            *(["--dev"] if dev else []),
        ]
        started = [NodeProcess(data_dir, number, options) for number in range(1, nodes + 1)]
        running.callback(_stop_all, started)
        for node in started:
            node.start()
        click.echo(f"bootstrap {','.join(node.wait() for node in started)}")
        stopped.wait()


@contextlib.contextmanager
def _zookeeper(folder: Path) -> Iterator[str]:
    server = ZooKeeperServer(folder)
    server.start(class_path())
    try:
        yield server.address
    finally:
        server.stop()


class NodeProcess:
    """One node. It ends when this process does, however that ends."""

    def __init__(self, folder: Path, number: int, options: list[str]) -> None:
        self._log_path = folder / f"node-{number}.log"
        self._number = number
        self._command = [
            *(sys.executable, "-m", "millstream", "broker"),
            *("--data-dir", str(folder / f"node-{number}")),
            *("--listen", "127.0.0.1:0", "--set", f"node.id={number}"),
            *options,
        ]
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with open(self._log_path, "ab") as errors:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
                # Ctrl-C is for this process, which stops them in order.
                start_new_session=True,
            )

    def wait(self) -> str:
        """The address, once the node serves. Raises CommandFailed where it does not start."""
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = re.match(r"listening on (\S+)", line)
            if found is not None:
                return found[1]
        raise CommandFailed(f"node {self._number} did not start, see {self._log_path}")

    def ask_to_stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def wait_stopped(self) -> None:
        if self.process is None:
            return
        try:
            self.process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def _stop_all(nodes: list[NodeProcess]) -> None:
    for node in nodes:
        node.ask_to_stop()
    for node in nodes:
        node.wait_stopped()
