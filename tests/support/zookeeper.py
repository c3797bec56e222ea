"""A real ZooKeeper, one for all tests of a session; each test has a root of its own."""

import contextlib
import itertools
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from millstream.cli.zookeeper import (
    ZooKeeperServer,
    debian_class_path,
    die_with_parent,
    spark_class_path,
)
from millstream.cluster.stores.ensemble import Ensemble
from tests.support.tools import MissingTool, require, skip_if_java_is_left_out
from tests.support.waiting import wait_until

_ROOTS = itertools.count(1)
_TIMEOUTS = {"session_timeout_ms": 18_000, "connect_timeout_ms": 18_000}


def ensemble_at(hosts: str, root: str = "", **settings: Any) -> Ensemble:
    return Ensemble(hosts, root, **{**_TIMEOUTS, **settings})


@contextlib.contextmanager
def zookeeper_server(
    folder: Path,
    *,
    jars: str | None = None,
    settings: str = "",
    host: str = "127.0.0.1",
    java_options: Sequence[str] = (),
) -> Iterator[ZooKeeperServer]:
    skip_if_java_is_left_out()
    require("java")
    server = ZooKeeperServer(folder, host=host, settings=settings, java_options=java_options)
    server.start(jars or spark_jars())
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def zookeeper_with_sasl(
    folder: Path, users: dict[str, str], *, is_required: bool = True
) -> Iterator[ZooKeeperServer]:
    """Only these users can log in; if it is required, nobody can stay without."""
    folder.mkdir(parents=True, exist_ok=True)
    names = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    jaas = folder / "jaas.conf"
    jaas.write_text(f"Server {{ {module} required {names}; }};\n")
    settings = (
        "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
        f"sessionRequireClientSASLAuth={str(is_required).lower()}\n"
    )
    java_options = [f"-Djava.security.auth.login.config={jaas}"]
    with zookeeper_server(folder, settings=settings, java_options=java_options) as server:
        yield server


class ZooKeeperEnsemble:
    """Several servers that elect a leader; `address` names all of them."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        ports = _free_ports(3 * count)
        self._clients = ports[:count]
        self._servers = "".join(
            f"server.{n + 1}=127.0.0.1:{ports[count + n]}:{ports[2 * count + n]}\n"
            for n in range(count)
        )
        self.address = ",".join(f"127.0.0.1:{port}" for port in self._clients)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the servers that do not run, and wait until all of them serve."""
        for number in range(len(self._clients)):
            process = self.processes.get(number)
            if process is None or process.poll() is not None:
                self.processes[number] = self._launch(number)
        wait_until(lambda: all(map(self._mode, self.processes)), "all ZooKeeper servers serve")

    def _launch(self, number: int) -> "subprocess.Popen[bytes]":
        place = self._folder / f"server-{number}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "myid").write_text(str(number + 1))
        settings = place / "zoo.cfg"
        settings.write_text(
            f"tickTime=500\ninitLimit=20\nsyncLimit=10\nmaxSessionTimeout=60000\n"
            f"dataDir={place.absolute()}\nclientPort={self._clients[number]}\n"
            f"clientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
            f"4lw.commands.whitelist=srvr\n{self._servers}"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with open(place / "output", "ab") as output:
            return subprocess.Popen(
                ["java", "-Xmx128m", "-XX:+UseSerialGC", "-cp", spark_jars(), main, str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
                start_new_session=True,
            )

    def _mode(self, number: int) -> str | None:
        """`leader` or `follower`; None while it does not serve."""
        address = "127.0.0.1", self._clients[number]
        with contextlib.suppress(OSError), socket.create_connection(address, 1) as ask:
            ask.sendall(b"srvr")
            for line in ask.makefile("r"):
                if line.startswith("Mode: "):
                    return line.removeprefix("Mode: ").strip()
        return None

    def kill_leader(self) -> None:
        for number, process in self.processes.items():
            if self._mode(number) == "leader":
                process.kill()
                process.wait()
                return
        raise AssertionError("no ZooKeeper server leads")

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextlib.contextmanager
def zookeeper_ensemble(folder: Path, count: int = 3) -> Iterator[ZooKeeperEnsemble]:
    skip_if_java_is_left_out()
    require("java")
    ensemble = ZooKeeperEnsemble(folder, count)
    try:
        ensemble.start()
        yield ensemble
    finally:
        ensemble.stop()


def spark_jars() -> str:
    jars = spark_class_path()
    if jars is None:
        raise MissingTool("PySpark, whose jars hold ZooKeeper: pip install 'millstream[spark]'")
    return jars


def debian_jars() -> str:
    jars = debian_class_path()
    if jars is None:
        raise MissingTool("ZooKeeper is not installed; on Debian: apt-get install -y zookeeper")
    return jars


def new_root() -> str:
    return f"/test-{next(_ROOTS)}"
