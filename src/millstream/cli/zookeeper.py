"""`millstream zookeeper`: a real ZooKeeper for development, from installed jars.

One server, no ensemble: in production you run your own. The jars are those of PySpark or,
without it, Debian's.
"""

import contextlib
import ctypes
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

import click

from millstream.cli.address import parse_address
from millstream.cli.bootstrap import json_option
from millstream.cli.child_processes import (
    OWNER_ONLY_UMASK,
    make_owner_only_folder,
    open_owner_only,
)
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.output import echo, print_line_json

_DEBIAN_JAR: Final = Path("/usr/share/java/zookeeper.jar")
# All that a single server needs of PySpark's four hundred.
_SPARK_JARS: Final = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "netty-*.jar",
)
_MAIN: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
_JVM_FLAGS: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
# A session lasts two ticks at least and forty at most: from one second to twenty.
_SETTINGS: Final = """tickTime=500
maxSessionTimeout=60000
dataDir={folder}
clientPort={port}
clientPortAddress={host}
admin.enableServer=false
4lw.commands.whitelist=srvr,mntr
"""
_SETTINGS_FILE: Final = "zoo.cfg"
_DIGEST_FILE: Final = "digest"
# Where ZooKeeper keeps its snapshots and its log.
_STATE_FOLDER: Final = "version-2"
_START_SECONDS_MAX: Final = 30.0
_STOP_SECONDS_MAX: Final = 10.0
_POLL_SECONDS: Final = 0.03
_DIE_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG


@click.command()
@click.option("--data-dir", type=click.Path(path_type=Path), required=True, help="Its files.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:2181",
    show_default=True,
    help="Address to listen on; port 0 picks a free one.",
)
@json_option
def zookeeper(data_dir: Path, listen: str, as_json: bool) -> None:
    """Run a ZooKeeper server for development, until SIGTERM or Ctrl-C.

    Prints `listening on HOST:PORT` when nodes can connect, and to stderr the options for them. The
    file `digest` in its directory has the credential: nodes that use it let no other client
    change what they store. Other users of this machine cannot read the files. Needs Java, and
    PySpark (`pip install 'millstream[spark]'`) or Debian's package zookeeper.
    """
    host, port = _address(listen)
    server = ZooKeeperServer(data_dir, host=host, port=port)
    server.start(class_path())
    digest = digest_file(data_dir)

    def on_signal(number: int, frame: FrameType | None) -> None:
        server.process.terminate()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    if as_json:
        print_line_json({"address": server.address, "digest_file": str(digest)})
    else:
        echo(f"listening on {server.address}")
        echo(
            f"nodes: --set zookeeper.connect={server.address}"
            f" --set 'millstream.zookeeper.digest=${{file:{digest}}}'",
            err=True,
        )
    code = server.process.wait()
    # Java exits with 143 when it is stopped.
    if code not in (0, 128 + signal.SIGTERM, -signal.SIGTERM):
        raise CommandFailed(f"ZooKeeper exited with code {code}")


def digest_file(folder: Path) -> Path:
    """The file with the credential of the nodes, created if it is missing."""
    path = folder.absolute() / _DIGEST_FILE
    make_owner_only_folder(folder)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"millstream:{secrets.token_hex(16)}\n")
    return path


class ZooKeeperServer:
    """The process. It ends when this one does, however that ends."""

    def __init__(
        self,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        settings: str = "",
        java_options: Sequence[str] = (),
    ) -> None:
        """`settings` are further lines of ZooKeeper's own file."""
        self._folder = folder
        self._java_options = java_options
        self._settings = settings
        self._host = host
        self._port = port
        # Bound to a port that was chosen here, so that no other process takes it first.
        self._reservation: socket.socket | None = None
        self.log_path = folder / "zookeeper.output"
        self.process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    def start(self, jars: str) -> None:
        """Raises CommandFailed unless it serves in time."""
        self.launch(jars)
        try:
            self.wait_serving()
        except BaseException:
            self.stop()
            raise

    def launch(self, jars: str) -> None:
        java = shutil.which("java")
        if java is None:
            raise CommandFailed("ZooKeeper needs Java 11 or newer, and there is none on the PATH")
        if not self._port:
            self._reservation = _reserve_port(self._host)
            self._port = self._reservation.getsockname()[1]
        make_owner_only_folder(self._folder)
        # Of an earlier version, perhaps, which let everybody read the secrets inside.
        with contextlib.suppress(FileNotFoundError):
            (self._folder / _STATE_FOLDER).chmod(0o700)
        settings = self._folder / _SETTINGS_FILE
        with open_owner_only(settings) as file:
            file.truncate(0)
            file.write(self._settings_text().encode())
        with open_owner_only(self.log_path) as output:
            self.process = subprocess.Popen(
                [java, *_JVM_FLAGS, *self._java_options, "-cp", jars, _MAIN, str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
                umask=OWNER_ONLY_UMASK,
                # Ctrl-C is for this process, which ends it last.
                start_new_session=True,
            )

    def _settings_text(self) -> str:
        own = _SETTINGS.format(folder=self._folder.absolute(), host=self._host, port=self._port)
        return own + self._settings

    def stop(self) -> None:
        if self._reservation is not None:
            self._reservation.close()
        self.process.terminate()
        try:
            self.process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait_serving(self) -> None:
        """It listens before it serves. Raises CommandFailed."""
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not self._serves():
            if self.process.poll() is not None:
                raise CommandFailed(f"ZooKeeper did not start, see {self.log_path}")
            if time.monotonic() > deadline:
                raise CommandFailed(
                    f"ZooKeeper did not serve in {_START_SECONDS_MAX:.0f} s, see {self.log_path}",
                    exit_code=ExitCode.TIMEOUT,
                )
            time.sleep(_POLL_SECONDS)

    def _serves(self) -> bool:
        address = self._host, self._port
        with contextlib.suppress(OSError), socket.create_connection(address, 1) as ask:
            ask.sendall(b"srvr")
            return b"Mode: standalone" in ask.makefile("rb").read()
        return False


def class_path() -> str:
    """Raises CommandFailed if there is no ZooKeeper on this machine."""
    return spark_class_path() or debian_class_path() or _nothing_found()


def spark_class_path() -> str | None:
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent / "jars"
    jars = [str(jar) for pattern in _SPARK_JARS for jar in sorted(folder.glob(pattern))]
    return ":".join(jars) if any("/zookeeper-" in jar for jar in jars) else None


def debian_class_path() -> str | None:
    """The jar lists everything else that it needs."""
    return str(_DEBIAN_JAR) if _DEBIAN_JAR.exists() else None


def _nothing_found() -> str:
    raise CommandFailed(
        "there is no ZooKeeper on this machine: pip install 'millstream[spark]', "
        "or on Debian apt-get install zookeeper"
    )


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    return (host, 0) if port == "0" and host else parse_address(listen)


def _reserve_port(host: str) -> socket.socket:
    """A server may listen on the port beside this socket, which does not: both reuse addresses."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((host, 0))
    return held


def die_with_parent() -> None:
    """Between fork and exec: however this process ends, the child is stopped."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGTERM)
