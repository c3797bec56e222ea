"""The two that are compared, as processes: Millstream and Apache Kafka.

Kafka is started as its own scripts start it: their heap and collector flags, and the
settings of the `server.properties` that it ships with.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.support.jars import classpath
from tests.support.tools import require, run_checked

KAFKA_FLAGS: Final = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Djava.awt.headless=true",
)
START_SECONDS_MAX: Final = 300
_STOP_SECONDS_MAX: Final = 120
_CLUSTER_ID: Final = "q1Sh-9_ISia_zwGINzRvyQ"
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
# Metadata version 1 for no topics: header, correlation id, client id, empty array.
_METADATA: Final = struct.pack(">hhih5si", 3, 1, 1, 5, b"bench", 0)
METADATA_FRAME: Final = struct.pack(">i", len(_METADATA)) + _METADATA

_LOG4J: Final = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR"><Appenders><Console name="out">
<PatternLayout pattern="[%d] %p %m (%c)%n"/></Console></Appenders>
<Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""


class Broker(ABC):
    """A broker with its data in `folder`, started and stopped as often as needed."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]: ...

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> float:
        """Start; the seconds until the first answer to Metadata."""
        began = time.perf_counter()
        self.launch()
        self.wait()
        return time.perf_counter() - began

    def launch(self) -> None:
        with open(self.folder / "output.log", "ab") as output:
            self._process = subprocess.Popen(
                self.command(),
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self.environment(),
            )

    def wait(self) -> None:
        """Until it answers a request."""
        assert self._process is not None, f"{self.name} was not launched"
        deadline = time.perf_counter() + START_SECONDS_MAX
        while not is_answering(self.port):
            if self._process.poll() is not None:
                raise AssertionError(f"{self.name} did not start:\n{self.log_tail()}")
            if time.perf_counter() > deadline:
                self.kill()
                raise AssertionError(f"{self.name} is not ready:\n{self.log_tail()}")
            time.sleep(0.005)

    def log_tail(self) -> str:
        return (self.folder / "output.log").read_text(errors="replace")[-3000:]

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def cpu_seconds(self) -> float:
        """Processor time the process has used, all its threads."""
        return cpu_seconds_of(self.pid)

    def memory_bytes(self) -> int:
        return memory_bytes_of(self.pid)


class Millstream(Broker):
    name = "Millstream"

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder)
        self._options = options

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "millstream", "broker", "--data-dir", "data"),
            *("--listen", self.bootstrap, *self._options),
        ]

    def environment(self) -> dict[str, str]:
        # Users have bytecode: pip compiles what it installs. A source tree may not, or may
        # be forbidden to, so the first start, which never counts, keeps it here.
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        return {**inherited, "PYTHONPYCACHEPREFIX": str(self.folder / "bytecode")}


class Kafka(Broker):
    name = "Kafka"

    def __init__(
        self, folder: Path, *, node_id: int = 1, voters: Mapping[int, int] | None = None
    ) -> None:
        """`voters` are the controller ports of all nodes of a cluster, by their ids."""
        super().__init__(folder)
        self._node_id = node_id
        self._voters = voters or {node_id: free_port()}
        self._write_settings()
        format_it = ["kafka.tools.StorageTool", "format", "--cluster-id", _CLUSTER_ID]
        run_checked(
            [*_java("-Xmx256M"), *format_it, "--config", str(folder / "server.properties")],
            timeout_seconds=60,
        )

    def command(self) -> list[str]:
        flags = (*KAFKA_FLAGS, f"-Dlog4j2.configurationFile={self.folder / 'log4j2.xml'}")
        return [*_java(*flags), "kafka.Kafka", str(self.folder / "server.properties")]

    def settings(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": str(self._node_id),
            "controller.quorum.voters": ",".join(
                f"{node_id}@127.0.0.1:{port}" for node_id, port in self._voters.items()
            ),
            "listeners": f"PLAINTEXT://{self.bootstrap},"
            f"CONTROLLER://127.0.0.1:{self._voters[self._node_id]}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.folder / "data"),
            # From here on: what Kafka's own server.properties sets.
            "num.network.threads": "3",
            "num.io.threads": "8",
            "socket.send.buffer.bytes": "102400",
            "socket.receive.buffer.bytes": "102400",
            "socket.request.max.bytes": "104857600",
            "num.partitions": "1",
            "num.recovery.threads.per.data.dir": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "log.retention.hours": "168",
            "log.segment.bytes": "1073741824",
            "log.retention.check.interval.ms": "300000",
        }

    def _write_settings(self) -> None:
        text = "".join(f"{name}={value}\n" for name, value in self.settings().items())
        (self.folder / "server.properties").write_text(text)
        (self.folder / "log4j2.xml").write_text(_LOG4J)


@contextmanager
def running(*brokers: Broker) -> Iterator[None]:
    with ExitStack() as stack:
        for broker in brokers:
            stack.callback(broker.stop)
            broker.start()
        yield


def cpu_seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def memory_bytes_of(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def is_answering(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=START_SECONDS_MAX) as sock:
            ask_metadata(sock)
    except OSError:
        return False
    return True


def ask_metadata(sock: socket.socket) -> None:
    sock.sendall(METADATA_FRAME)
    size = struct.unpack(">i", _receive_exactly(sock, 4))[0]
    _receive_exactly(sock, size)


def _receive_exactly(sock: socket.socket, count: int) -> bytes:
    data = sock.recv(count, socket.MSG_WAITALL)
    if len(data) != count:
        raise ConnectionResetError("closed in the middle of an answer")
    return data


def _java(*flags: str) -> list[str]:
    return [require("java"), *flags, "-cp", classpath()]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
