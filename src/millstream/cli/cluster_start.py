"""`millstream cluster start`: a ZooKeeper and several nodes on this machine."""

import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Final

import click

from millstream.cli.address import parse_address
from millstream.cli.bootstrap import json_option
from millstream.cli.child_processes import Watch, make_owner_only_folder
from millstream.cli.node_process import FREE_PORT, NodeProcess
from millstream.cli.output import echo, print_line_json
from millstream.cli.zookeeper import ZooKeeperServer, class_path, digest_file
from millstream.client.blocking import Address, Connection
from millstream.config.load import refuse_secrets
from millstream.errors import KafkaCode, ProtocolError
from millstream.wire.apis.create_topics import CreatableTopic, CreateTopicsRequest

_REPLICAS_MAX: Final = 3
_MIN_ISR_MAX: Final = 2
# Not created: nodes only say whether they would.
_PROBE_TOPIC: Final = "millstream-ready"
_PROBE_TIMEOUT_MS: Final = 5_000
_PROBE_PAUSE_SECONDS: Final = 0.05


@click.command()
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(1, 20))
@click.option(
    "--data-dir", type=click.Path(path_type=Path), required=True, help="Holds a folder per node."
)
@click.option("--zookeeper", metavar="HOST:PORT", help="Use this ZooKeeper instead of a new one.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where the first node listens; the others take the ports after it. Free ports without.",
)
@click.option(
    "--first-node-id",
    default=1,
    show_default=True,
    type=click.IntRange(0),
    help="The node.id of the first node; the others count on.",
)
@click.option(
    "--set", "sets", multiple=True, metavar="NAME=VALUE", help="Set an option on all nodes."
)
@click.option("--dev", is_flag=True, help="Answer acks=all without waiting for the disk.")
@click.option("--no-restart", is_flag=True, help="Do not restart processes that exit.")
@json_option
def start(
    nodes: int,
    data_dir: Path,
    zookeeper: str | None,
    listen: str | None,
    first_node_id: int,
    sets: tuple[str, ...],
    dev: bool,
    no_restart: bool,
    as_json: bool,
) -> None:
    """Run ZooKeeper and several nodes on this machine, until SIGTERM or Ctrl-C.

    Prints `bootstrap HOST:PORT,...` when topics with all their replicas can be created. If a
    process exits, the command prints its exit code and its log to stderr and restarts it after
    five seconds. New topics get three replicas, or one per node if there are fewer; so do the
    topics of groups and transactions. Only these nodes can change what is in ZooKeeper; the groups
    are copied to /consumers there. A node uses one core: to use a machine with many, run as many
    nodes, with --zookeeper and --listen, and broker.rack if there are several machines. ZooKeeper
    needs Java, and PySpark
    (`pip install 'millstream[spark]'`) or Debian's package zookeeper.
    """
    refuse_secrets(sets)
    stopped = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    watch = Watch(restarts=not no_restart)
    started: list[NodeProcess] = []
    server: _ZooKeeper | None = None
    digest: list[str] = []
    make_owner_only_folder(data_dir)
    try:
        if zookeeper is None:
            server = _ZooKeeper(data_dir / "zookeeper")
            server.start()
            zookeeper = server.wait_serving()
            watch.over(server)
            digest = ["--set", f"millstream.zookeeper.digest=${{file:{server.digest_path}}}"]
        options = [
            *("--set", f"zookeeper.connect={zookeeper}"),
            *digest,
            *("--set", "zookeeper.consumers.mirror=true"),
            *_replica_options(nodes),
            *(word for each in sets for word in ("--set", each)),
            *(["--dev"] if dev else []),
        ]
        started = [
            NodeProcess(
                data_dir, first_node_id + place, options, address=node_address(listen, place)
            )
            for place in range(nodes)
        ]
        for node in started:
            node.start()
        addresses = [node.wait_serving() for node in started]
        for node in started:
            watch.over(node)
        _wait_ready(addresses, min(nodes, _REPLICAS_MAX), stopped)
        if not stopped.is_set():
            bootstrap = ",".join(addresses)
            if as_json:
                print_line_json({"bootstrap": bootstrap, "zookeeper": zookeeper})
            else:
                echo(f"bootstrap {bootstrap}")
        stopped.wait()
    finally:
        watch.stop()
        _stop_all(started)
        if server is not None:
            server.stop()


def node_address(listen: str | None, place: int) -> str:
    """Where the node in this place listens; port 0 is any free one."""
    if listen is None:
        return FREE_PORT
    host, port = parse_address(listen)
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port + place}"


def _wait_ready(addresses: list[str], replicas: int, stopped: threading.Event) -> None:
    """Until every node would create a topic with so many replicas, or the command is stopped."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=_PROBE_TOPIC,
                num_partitions=1,
                replication_factor=replicas,
                assignments=[],
                configs=[],
            )
        ],
        timeout_ms=_PROBE_TIMEOUT_MS,
        validate_only=True,
    )
    for address in addresses:
        while not stopped.is_set() and not _would_create(address, request):
            stopped.wait(_PROBE_PAUSE_SECONDS)


def _would_create(address: str, request: CreateTopicsRequest) -> bool:
    host, port = parse_address(address)
    try:
        connection = Connection(Address(host, port), client_id="millstream-cluster-start")
    except OSError:
        return False
    try:
        return connection.ask(request).topics[0].error_code == KafkaCode.NONE
    except (OSError, ProtocolError):
        # It may just be restarting.
        return False
    finally:
        connection.close()


def _replica_options(nodes: int) -> list[str]:
    replicas = min(nodes, _REPLICAS_MAX)
    settings = {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": min(replicas, _MIN_ISR_MAX),
    }
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


class _ZooKeeper:
    """The server as one of the watched processes."""

    name = "ZooKeeper"

    def __init__(self, folder: Path) -> None:
        self._server = ZooKeeperServer(folder)
        self._jars = class_path()
        self._is_launched = False
        self.log_path = self._server.log_path
        self.digest_path = digest_file(folder)

    def start(self) -> None:
        self._server.launch(self._jars)
        self._is_launched = True

    def wait_serving(self) -> str:
        self._server.wait_serving()
        return self._server.address

    def wait_ended(self) -> int:
        return self._server.process.wait()

    def stop(self) -> None:
        if self._is_launched:
            self._server.stop()


def _stop_all(nodes: list[NodeProcess]) -> None:
    for node in nodes:
        node.ask_to_stop()
    for node in nodes:
        node.wait_stopped()
