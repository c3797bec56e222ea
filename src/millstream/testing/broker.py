"""A node in a thread of the test's own process, with its own event loop.

It listens on a free port of 127.0.0.1, keeps its data in a directory that is removed at
the end, and answers from the page cache: a test wants speed, not safety from a power cut.
Everything else is the broker that users run. Stopped and started again, it has the same port
and the same data, until the block ends.
"""

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from millstream.broker.broker import Broker as Node
from millstream.config import load_config
from millstream.lazy_dataclass import dataclass
from millstream.storage.lookup import find_timestamp
from millstream.testing.client_config import Access
from millstream.testing.clock import MovableClock, milliseconds
from millstream.testing.credentials import Credentials, secured_settings
from millstream.testing.data_folder import check_storage
from millstream.testing.faults import Faults
from millstream.testing.in_flight import InFlight, in_flight
from millstream.testing.loop_thread import LoopThread
from millstream.testing.older_kafka import older_kafka
from millstream.testing.registry import RegistryThread
from millstream.testing.started import StartedKafka
from millstream.testing.traffic import ConnectedClient, SeenRequest, Traffic, connected_clients

_START_SECONDS_MAX = 30.0
_STOP_SECONDS_MAX = 30.0
# A test's group should not wait for members that may come.
_SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0"}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The data of a broker at one moment; `Broker.restore` goes back to it."""

    folder: Path


class Broker(StartedKafka):
    """`with Broker() as broker:` runs a node until the block ends."""

    def __init__(
        self,
        *,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        data_dir: Path | None = None,
        port: int = 0,
        storage: str = "memory",
        security: str | None = None,
        registry: bool = False,
        watches_requests: bool = True,
    ) -> None:
        """`topics` are names with partition counts, `settings` broker options by Kafka's names.

        A `data_dir` that is given is kept afterwards; without one the data is temporary, in
        memory or on the disk, as `storage` says. `security` is `ssl`, `sasl_ssl` or
        `sasl_plaintext`: credentials are made up, and `client_config` has them. With
        `registry`, a schema registry runs beside it, at `registry_url`. An option that the node
        cannot honour is an error. Without `watches_requests`, requests that repeat take
        the same short way as on a node outside of tests, and there are no `requests` and `faults`.
        """
        super().__init__()
        self._topics = dict(topics or {})
        self._settings = {**_SETTINGS, **(settings or {})}
        check_storage(storage)
        if "listeners" in self._settings and (port or security):
            raise ValueError("settings has listeners, so port and security cannot be honoured")
        if "log.dirs" in self._settings or "log.dir" in self._settings:
            raise ValueError("the directory is data_dir, not an option in settings")
        self._data_dir = data_dir
        self._storage = storage
        self._security = security
        self._registry = RegistryThread(self) if registry else None
        self._watches_requests = watches_requests
        self._listeners = self._settings.pop("listeners", "")
        self._wanted_port = port
        # The addresses of all listeners by name; `bootstrap` is that of the first.
        self.listeners: dict[str, str] = {}
        self.clock = MovableClock()
        self._traffic = Traffic(time.monotonic)
        self._credentials: Credentials | None = None
        # Both not None exactly while the node runs.
        self._thread: LoopThread | None = None
        self._node: Node | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def aio(cls, **options: Any) -> AsyncIterator["Broker"]:
        """`async with Broker.aio() as broker:`; the node has its own loop here, too."""
        broker = cls(**options)
        await asyncio.to_thread(broker.start)
        try:
            yield broker
        finally:
            await asyncio.to_thread(broker.close)

    # -- start and stop ---------------------------------------------------------------

    def start(self) -> None:
        """Run the node; it answers when this returns."""
        assert self._thread is None, "the broker runs already"
        if self._security is not None and self._credentials is None:
            self._credentials = Credentials.make(self._security, self._folder())
        thread = LoopThread("millstream-broker", self.clock)
        try:
            self._node = thread.run(self._start_node(), seconds_max=_START_SECONDS_MAX)
        except BaseException:
            thread.stop()
            self.close()
            raise
        self._thread = thread
        self._traffic.name_of = self._name_of
        self.listeners = {each.name: f"127.0.0.1:{each.port}" for each in self._node.endpoints}
        # The next start gets the same port.
        self._wanted_port = self._node.port
        self.bootstrap = f"127.0.0.1:{self._wanted_port}"
        try:
            self._create_missing_topics(self._topics)
            if self._registry is not None:
                self._registry.start()
        except BaseException:
            # A block that was not entered is never left.
            self.close()
            raise

    def _folder(self) -> Path:
        """For data that is not kept, snapshots and credentials."""
        return self._temporary_folder(self._storage)

    def _data(self) -> Path:
        return self._data_dir or self._folder() / "data"

    def stop(self) -> None:
        """Stop cleanly and wait for it. `start` goes on with the same port and data."""
        if self._thread is None:
            return
        if self._registry is not None:
            self._registry.stop()
        self._admin = None
        assert self._node is not None
        thread, self._thread = self._thread, None
        node, self._node = self._node, None
        thread.run(node.stop(), seconds_max=_STOP_SECONDS_MAX)
        thread.stop()

    def close(self) -> None:
        """Stop for good: data that is not kept is removed."""
        try:
            self.stop()
        finally:
            self._remove_temporary()

    def snapshot(self) -> Snapshot:
        """All data as it is now. The node is stopped for a moment: clients reconnect."""
        self.stop()
        folder = Path(tempfile.mkdtemp(prefix="snapshot-", dir=self._folder()))
        shutil.copytree(self._data(), folder / "data")
        self.start()
        return Snapshot(folder / "data")

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot, which can be used again."""
        self.stop()
        shutil.rmtree(self._data())
        shutil.copytree(snapshot.folder, self._data())
        self.start()

    def rewind(self, to: str | datetime) -> None:
        """Go back to a time such as `2026-01-01T00:00Z`: in every partition, the first record with
        a later timestamp is gone, and all behind it. What groups committed later is gone as well;
        topics and their options stay. The node restarts: clients reconnect."""
        assert self._thread is not None, "the broker does not run"
        assert self._node is not None
        work = self._cut_after(self._node, milliseconds(to))
        self._thread.run(work, seconds_max=_START_SECONDS_MAX)
        self.stop()
        self.start()

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    @property
    def registry_url(self) -> str:
        """Of the schema registry, for its clients."""
        if self._registry is None:
            raise ValueError("there is no schema registry: use Broker(registry=True)")
        return self._registry.url

    # -- for tests --------------------------------------------------------------------

    @property
    def faults(self) -> Faults:
        return self._traffic.faults

    def limit_versions(self, release: str) -> None:
        """Offer the versions of requests that an older Kafka did, such as `3.9`, from now on. A
        connection that uses a newer one is closed, and its client asks for the versions again."""
        self._traffic.older = older_kafka(release)

    def requests(self, api: str | None = None, client_id: str | None = None) -> list[SeenRequest]:
        """The last ten thousand requests, of one API or client or all, in order."""
        return self._traffic.requests(api, client_id)

    def clients(self) -> list[ConnectedClient]:
        """Who is connected now."""
        assert self._thread is not None, "the broker does not run"
        assert self._node is not None
        return self._thread.run(connected_clients([self._node]), seconds_max=_START_SECONDS_MAX)

    def in_flight(self, group_id: str) -> list[InFlight]:
        """What members of a share group have acquired, and what is to be delivered again."""
        assert self._thread is not None, "the broker does not run"
        assert self._node is not None
        work = in_flight(self._node, group_id)
        return self._thread.run(work, seconds_max=_START_SECONDS_MAX)

    def _name_of(self, topic_id: UUID) -> str | None:
        topic = None if self._node is None else self._node.node.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def _access(self) -> Access:
        if self._credentials is None:
            return super()._access()
        return self._credentials.access(self.bootstrap)

    # -- in the thread of the node ----------------------------------------------------

    async def _start_node(self) -> Node:
        settings = {**self._settings, **secured_settings(self._credentials)}
        config = load_config(
            sets=[f"{name}={value}" for name, value in settings.items()],
            flags={"log.dirs": str(self._data()), "listeners": self._listen_on()},
        )
        node = Node(config, dev=True, clock=self.clock)
        if self._watches_requests:
            node.pass_through(self._traffic.through)
        await node.start()
        return node

    async def _cut_after(self, node: Node, at_ms: int) -> None:
        for partition in node.node.partitions:
            found = find_timestamp(
                partition.log.segments.all,
                at_ms + 1,
                from_offset=partition.log.log_start_offset,
                upto_offset=partition.log.next_offset,
            )
            if found is not None:
                partition.log.truncate_to(found.offset)

    def _listen_on(self) -> str:
        if self._listeners:
            return self._listeners
        protocol = "PLAINTEXT" if self._security is None else self._security.upper()
        return f"{protocol}://127.0.0.1:{self._wanted_port}"
