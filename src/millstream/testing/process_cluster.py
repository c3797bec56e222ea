"""The same as `Cluster`, with a process for each broker and a real ZooKeeper.

For what one process cannot show: `kill -9` and memory that is really gone. Starting takes seconds.
ZooKeeper needs Java, and PySpark or Debian's package zookeeper.
"""

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from millstream.client.blocking import Address, Connection
from millstream.testing.cluster import CHOSEN, SETTINGS, replicated
from millstream.testing.data_folder import check_storage, new_folder
from millstream.testing.kafka import Kafka
from millstream.testing.network import largest, sides_of, unreached
from millstream.wire.apis.metadata import MetadataPartition, MetadataRequest, MetadataResponse

_START_SECONDS_MAX: Final = 60.0
_WAIT_SECONDS_MAX: Final = 60.0
_LOOK_EVERY_SECONDS: Final = 0.05
# As short as ZooKeeper allows: a test waits for it when a node is cut off.
_SESSION_MS: Final = 2_000


class ProcessCluster(Kafka):
    """`with ProcessCluster(brokers=3) as cluster:` runs nodes 1, 2 and 3 until the block ends."""

    def __init__(
        self,
        *,
        brokers: int = 3,
        replication: int | None = None,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        storage: str = "memory",
    ) -> None:
        """The options are those of `Cluster`."""
        super().__init__()
        replicas = min(3, brokers) if replication is None else replication
        if brokers < 1 or not 1 <= replicas <= brokers:
            raise ValueError(f"{brokers} brokers cannot have {replicas} replicas of a topic")
        check_storage(storage)
        self._settings = {**SETTINGS, **replicated(replicas), **(settings or {})}
        for name in sorted(CHOSEN & self._settings.keys()):
            raise ValueError(f"the cluster chooses {name} of its brokers: leave it out")
        self._topics = dict(topics or {})
        self._storage = storage
        self.ids: tuple[int, ...] = tuple(range(1, brokers + 1))
        self._ports: dict[int, int] = dict.fromkeys(self.ids, 0)
        self._processes: dict[int, _Process] = {}
        self._zookeeper: _Process | None = None
        # Each node reaches ZooKeeper through its own.
        self._relays: dict[int, _Relay] = {}
        self._unreached: Mapping[int, Collection[int]] = {}
        # Those that do not reach ZooKeeper.
        self._isolated: set[int] = set()
        self._folder: Path
        self._remove: Callable[[], object] = lambda: None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # -- start and stop ---------------------------------------------------------------

    def start(self) -> None:
        """Run ZooKeeper and all brokers; they form a cluster when this returns."""
        assert self._zookeeper is None, "the cluster runs already"
        self._folder = new_folder(self._storage)
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        try:
            self._start_zookeeper()
            for node_id in self.ids:
                self._start(node_id)
            self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
            self._wait(self._all_are_alive, "the brokers know each other")
            self._create_missing_topics(self._topics)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all processes and remove their data."""
        self._admin = None
        for process in self._processes.values():
            process.kill()
        self._processes.clear()
        for relay in self._relays.values():
            relay.close()
        self._relays.clear()
        if self._zookeeper is not None:
            self._zookeeper.kill()
            self._zookeeper = None
        self._remove()

    def kill(self, node_id: int) -> None:
        """SIGKILL."""
        self._processes.pop(self._running(node_id)).kill()

    def stop(self, node_id: int) -> None:
        """Stop a broker cleanly: it hands its leaderships over first."""
        self._processes.pop(self._running(node_id)).stop()

    def restart(self, node_id: int) -> None:
        """Start a broker that does not run, on its port and with its data; one that runs is
        stopped first."""
        if node_id in self._processes:
            self.stop(node_id)
        elif node_id not in self._ports:
            raise ValueError(f"there is no broker {node_id}; there are {list(self.ids)}")
        self._start(node_id)

    def repair(self) -> None:
        """Everything runs and is in sync again, whatever a test has done."""
        self.heal_network()
        for node_id in self.ids:
            if node_id not in self._processes:
                self._start(node_id)
        self._wait(self._all_are_alive, "the brokers know each other")
        self.wait_in_sync()

    def _running(self, node_id: int) -> int:
        if node_id not in self._processes:
            raise ValueError(f"broker {node_id} does not run; {self.running} do")
        return node_id

    def _start_zookeeper(self) -> None:
        self._zookeeper = _Process(
            [
                *("-m", "millstream", "zookeeper", "--json"),
                *("--data-dir", str(self._folder / "zookeeper"), "--listen", "127.0.0.1:0"),
            ],
            self._folder / "zookeeper.log",
        )
        address = self._zookeeper.answer()["address"]
        port = int(address.rpartition(":")[2])
        self._relays = {node_id: _Relay(port) for node_id in self.ids}

    def _start(self, node_id: int) -> None:
        process = _Process(
            ["-m", "millstream.testing.node_process"], self._folder / f"node-{node_id}.log"
        )
        self._processes[node_id] = process
        process.send(
            {
                **self._settings,
                "node.id": str(node_id),
                "log.dirs": str(self._folder / f"node-{node_id}"),
                "listeners": f"PLAINTEXT://127.0.0.1:{self._ports[node_id]}",
                "zookeeper.connect": f"127.0.0.1:{self._relays[node_id].port}",
                "zookeeper.session.timeout.ms": str(_SESSION_MS),
            }
        )
        self._ports[node_id] = process.answer()["port"]
        self._cut(node_id)

    # -- the network ------------------------------------------------------------------

    def partition_network(self, *sides: Collection[int]) -> None:
        """Brokers of different sides do not reach each other any more. ZooKeeper is with the
        largest side, or the first of equal ones; the sessions of the others expire. Clients reach
        everyone, and those that ask a broker without ZooKeeper hear what it last knew."""
        everyone = sides_of(sides, self.ids)
        self._unreached = unreached(everyone)
        for node_id in self._processes:
            self._cut(node_id)
        self._isolated = set(self.ids) - largest(everyone)
        for node_id in self._isolated:
            self._relays[node_id].cut()

    def heal_network(self) -> None:
        """Everyone reaches everyone again."""
        self._unreached = {}
        self._isolated = set()
        for relay in self._relays.values():
            relay.heal()
        for node_id in self._processes:
            self._cut(node_id)

    def _cut(self, node_id: int) -> None:
        process = self._processes[node_id]
        process.send(sorted(self._unreached.get(node_id, ())))
        process.answer()

    # -- looking ----------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self._zookeeper is not None

    @property
    def running(self) -> list[int]:
        return sorted(self._processes)

    @property
    def controller(self) -> int:
        return self._metadata().controller_id

    def leader(self, topic: str, partition: int) -> int:
        """The broker that leads; waits while there is none."""
        self._wait(
            lambda: self._partition(topic, partition).leader_id in self._processes,
            f"{topic}-{partition} has a leader",
        )
        return self._partition(topic, partition).leader_id

    def in_sync(self, topic: str, partition: int) -> tuple[int, ...]:
        """The in-sync replicas."""
        return tuple(self._partition(topic, partition).isr_nodes)

    def wait_in_sync(self) -> None:
        """Wait until every replica of every partition is in sync."""
        self._wait(self._all_in_sync, "all replicas are in sync")

    def _metadata(self) -> MetadataResponse:
        """What a broker knows that reaches ZooKeeper."""
        sure = [node_id for node_id in self.running if node_id not in self._isolated]
        if not sure:
            raise RuntimeError("no broker of the cluster runs")
        address = Address("127.0.0.1", self._ports[sure[0]])
        connection = Connection(address, client_id="millstream-testing")
        try:
            return connection.ask(MetadataRequest(topics=None))
        finally:
            connection.close()

    def _partition(self, topic: str, partition: int) -> MetadataPartition:
        for one in self._metadata().topics:
            if one.name == topic and partition < len(one.partitions):
                [found] = [each for each in one.partitions if each.partition_index == partition]
                return found
        raise ValueError(f"there is no partition {topic}-{partition}")

    def _all_are_alive(self) -> bool:
        return {one.node_id for one in self._metadata().brokers} == set(self.ids)

    def _all_in_sync(self) -> bool:
        return all(
            set(one.replica_nodes) == set(one.isr_nodes)
            for topic in self._metadata().topics
            for one in topic.partitions
        )

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        ends_at = time.monotonic() + _WAIT_SECONDS_MAX
        while not is_so():
            if time.monotonic() > ends_at:
                raise TimeoutError(f"not within {_WAIT_SECONDS_MAX:.0f} s: {what}")
            time.sleep(_LOOK_EVERY_SECONDS)


class _Process:
    """A Python process that reads and writes JSON lines."""

    def __init__(self, arguments: list[str], log_path: Path) -> None:
        self._log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def send(self, value: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        # A process that hangs is ended, so that the line comes, or the end does.
        patience = threading.Timer(_START_SECONDS_MAX, self._process.kill)
        patience.start()
        try:
            line = self._process.stdout.readline()
        finally:
            patience.cancel()
        if not line:
            log = self._log_path.read_text(errors="replace")[-2_000:]
            raise RuntimeError(f"a process of the cluster has ended:\n{log}")
        found: dict[str, Any] = json.loads(line)
        return found

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_START_SECONDS_MAX)
        self._close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class _Relay:
    """A port that passes everything on to another one, until it is cut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._is_cut = False
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_cut = True
        with self._lock:
            for each in self._open:
                _shut(each)

    def heal(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        _shut(self._listening)
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listening.accept()
            except OSError:
                return
            if self._is_cut:
                one.close()
                continue
            try:
                other = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                one.close()
                continue
            for source, sink in ((one, other), (other, one)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with self._lock:
            self._open.add(source)
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        finally:
            _shut(sink)
            with self._lock:
                self._open.discard(source)
            source.close()


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        # It is closed already.
        return
