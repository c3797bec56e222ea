"""A real Apache Kafka broker (KRaft, one combined node), and its DumpLogSegments.

It is the judge: the interop tests run against it to prove the tests themselves right, it
writes directories for us to adopt, and it opens directories that we wrote.
"""

import contextlib
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from tests.support.jars import classpath
from tests.support.ports import reserve_port
from tests.support.tools import require, run_checked, skip_if_java_is_left_out

_START_SECONDS_MAX = 240
_STOP_SECONDS_MAX = 40
_CLUSTER_ID = "q1Sh-9_ISia_zwGINzRvyQ"

_LOG4J = """<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR"><Appenders><Console name="out">
<PatternLayout pattern="%d{HH:mm:ss.SSS} %p %m (%c{1})%n"/></Console></Appenders>
<Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""


class ApacheKafka:
    """`with ApacheKafka(data_dir) as kafka:` formats if needed, starts, stops cleanly."""

    def __init__(
        self,
        data_dir: Path,
        *,
        settings: dict[str, str] | None = None,
        listeners: dict[str, str] | None = None,
        member_of: "ApacheKafka | None" = None,
        node_id: int = 1,
    ) -> None:
        """`listeners` are more of them: a name in capitals to a security protocol. A `member_of`
        another node is a broker of its cluster, and that node its controller."""
        self.data_dir = data_dir
        self._protocols = listeners or {}
        self.port = reserve_port()
        self._controller = member_of or self
        self._first_node_id = node_id
        self._controller_port = reserve_port()
        # By name, where each of them is.
        self.addresses = {name: f"127.0.0.1:{reserve_port()}" for name in self._protocols}
        self._settings = settings or {}
        self._work = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self._process: subprocess.Popen[bytes] | None = None
        # Where the log of the last start begins.
        self._log_start = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_text(self) -> str:
        return (self._work / "kafka.log").read_text(errors="replace")

    def _log_since_start(self) -> str:
        return (self._work / "kafka.log").read_bytes()[self._log_start :].decode(errors="replace")

    def __enter__(self) -> "ApacheKafka":
        skip_if_java_is_left_out()
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        properties = self._write_properties()
        # A directory that has been formatted, by Kafka or by us, keeps its ids.
        run_checked(
            [
                *self._java(heap="128m"),
                "kafka.tools.StorageTool",
                "format",
                "--ignore-formatted",
                "--cluster-id",
                self._cluster_id(),
                "--config",
                str(properties),
            ],
            timeout_seconds=_START_SECONDS_MAX,
        )
        with open(self._work / "kafka.log", "ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                [*self._java(heap="512m"), "kafka.Kafka", str(properties)],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._work,
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop as an administrator does (SIGTERM), so the directory is left clean."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """kill -9: no clean-up at all."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def _cluster_id(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            text = (self.data_dir / "meta.properties").read_text()
            found = re.search(r"^cluster\.id=(\S+)", text, re.MULTILINE)
            if found:
                return found[1]
        return _CLUSTER_ID

    def _node_id(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            text = (self.data_dir / "meta.properties").read_text()
            found = re.search(r"^node\.id=(\S+)", text, re.MULTILINE)
            if found:
                return found[1]
        return str(self._first_node_id)

    def _write_properties(self) -> Path:
        controller = self._controller
        voter = f"127.0.0.1:{controller._controller_port}"
        is_controller = controller is self
        settings = {
            "process.roles": "broker,controller" if is_controller else "broker",
            "node.id": self._node_id(),
            "controller.quorum.voters": f"{controller._node_id()}@{voter}",
            "listeners": ",".join(
                f"{name}://{address}"
                for name, address in (
                    ("PLAINTEXT", self.bootstrap),
                    *([("CONTROLLER", voter)] if is_controller else []),
                    *self.addresses.items(),
                )
            ),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}"
                for name, protocol in (
                    ("PLAINTEXT", "PLAINTEXT"),
                    ("CONTROLLER", "PLAINTEXT"),
                    *self._protocols.items(),
                )
            ),
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "true",
            **self._settings,
        }
        path = self._work / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        (self._work / "log4j2.xml").write_text(_LOG4J)
        return path

    def _java(self, *, heap: str) -> list[str]:
        return [
            require("java"),
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={self._work / 'log4j2.xml'}",
            "-cp",
            classpath(),
        ]

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _START_SECONDS_MAX
        while "Kafka Server started" not in self._log_since_start():
            assert self._process is not None
            if self._process.poll() is not None:
                raise AssertionError(f"Apache Kafka did not start:\n{self.log_text[-6000:]}")
            if time.monotonic() > deadline:
                raise AssertionError(f"Apache Kafka is not ready:\n{self.log_text[-6000:]}")
            # Another program's log file has no event to wait on.
            time.sleep(0.1)


def dump_log_segments(
    files: Iterable[Path], *, deep: bool = True, index_sanity: bool = False
) -> str:
    """What Kafka's own DumpLogSegments prints about these files."""
    skip_if_java_is_left_out()
    options = ["--deep-iteration"] if deep else []
    if index_sanity:
        options.append("--index-sanity-check")
    return run_checked(
        [
            require("java"),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            classpath(),
            "org.apache.kafka.tools.DumpLogSegments",
            *options,
            "--files",
            ",".join(str(file) for file in files),
        ],
        timeout_seconds=120,
    )
