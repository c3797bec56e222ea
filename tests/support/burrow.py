"""Burrow, which watches the lag of consumer groups, with the ZooKeeper it needs for itself.

Both are Debian's. Burrow 1.2.1 reads `__consumer_offsets` with a client of 2019, and writes
down every commit that it finds.
"""

import contextlib
import json
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.ports import reserve_port
from tests.support.tools import MissingTool, require, skip_if_java_is_left_out

ZOOKEEPER_JAR = Path("/usr/share/java/zookeeper.jar")
_STOP_SECONDS_MAX = 15
_START_SECONDS_MAX = 60

_ZOOKEEPER_SETTINGS = """tickTime=2000
dataDir={folder}/zookeeper
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
"""

_BURROW_SETTINGS = """[general]
pidfile="{folder}/burrow.pid"
[logging]
filename="{folder}/burrow.log"
level="debug"
[zookeeper]
servers=["127.0.0.1:{zookeeper_port}"]
timeout=6
root-path="/burrow"
[client-profile.tests]
client-id="burrow"
kafka-version="2.1.0"
[cluster.local]
class-name="kafka"
servers=["{bootstrap}"]
client-profile="tests"
topic-refresh=5
offset-refresh=1
[consumer.local]
class-name="kafka"
cluster="local"
servers=["{bootstrap}"]
client-profile="tests"
start-latest=false
group-blacklist=""
group-whitelist=""
[httpserver.default]
address="127.0.0.1:{http_port}"
[storage.default]
class-name="inmemory"
workers=2
intervals=15
expire-group=604800
min-distance=1
"""


class Burrow:
    """`with Burrow(folder, bootstrap) as burrow:` starts both, and stops both."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        self._running = contextlib.ExitStack()

    def __enter__(self) -> "Burrow":
        skip_if_java_is_left_out()
        if not ZOOKEEPER_JAR.exists():
            raise MissingTool("ZooKeeper is not installed; on Debian: apt-get install -y zookeeper")
        self._folder.mkdir(parents=True)
        zookeeper_port, http_port = reserve_port(), reserve_port()
        settings = self._folder / "zoo.cfg"
        settings.write_text(_ZOOKEEPER_SETTINGS.format(folder=self._folder, port=zookeeper_port))
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        jar = str(ZOOKEEPER_JAR)
        (self._folder / "burrow.toml").write_text(
            _BURROW_SETTINGS.format(
                folder=self._folder,
                bootstrap=self._bootstrap,
                zookeeper_port=zookeeper_port,
                http_port=http_port,
            )
        )
        with contextlib.ExitStack() as starting:
            starting.callback(self._running.close)
            self._start("zookeeper", require("java"), "-Xmx64m", "-cp", jar, main, str(settings))
            _wait_for_zookeeper(zookeeper_port)
            self._start("burrow", require("Burrow"), "-config-dir", str(self._folder))
            starting.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.close()

    def _start(self, name: str, *command: str) -> None:
        with open(self._folder / f"{name}.output", "wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, cwd=self._folder
            )
        self._running.callback(_stop, process)

    def log(self) -> list[dict[str, Any]]:
        """What it has written down so far, a line each."""
        path = self._folder / "burrow.log"
        if not path.exists():
            return []
        # The last line may be half written.
        whole, _, _ = path.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def commits(self, group: str) -> dict[tuple[str, int], int]:
        """The last offset it has read of each partition that the group committed."""
        return {
            (line["topic"], line["partition"]): line["offset"]
            for line in self.log()
            if line["msg"] == "consumer offset" and line["group"] == group
        }


def _wait_for_zookeeper(port: int) -> None:
    """It listens before it serves, and Burrow tries only once."""
    deadline = time.monotonic() + _START_SECONDS_MAX
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as ask:
            ask.sendall(b"srvr")
            if b"Mode: standalone" in ask.makefile("rb").read():
                return
        assert time.monotonic() < deadline, "ZooKeeper did not start"
        time.sleep(0.05)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
