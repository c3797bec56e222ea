"""A node in a thread of the test's own process, with its own event loop.

It listens on a free port of 127.0.0.1, keeps its data in a directory that is removed at
the end, and answers from the page cache: a test wants speed, not safety from a power cut.
Everything else is the broker that users run.
"""

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from millstream.broker.broker import Broker as Node
from millstream.config import load_config

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_START_SECONDS_MAX = 30.0
_STOP_SECONDS_MAX = 30.0
_REQUEST_SECONDS_MAX = 20.0


class Broker:
    """`with Broker() as broker:` runs a node until the block ends."""

    def __init__(
        self,
        *,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        data_dir: Path | None = None,
    ) -> None:
        """`topics` are names with partition counts, `settings` broker options by Kafka's names.

        A `data_dir` that is given is kept afterwards; without one it is temporary.
        """
        # The address of the first listener, and those of all by name.
        self.bootstrap = ""
        self.listeners: dict[str, str] = {}
        self._topics = dict(topics or {})
        self._settings = dict(settings or {})
        self._data_dir = data_dir
        self._cleanup = contextlib.ExitStack()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._admin: AdminClient | None = None

    def __enter__(self) -> Self:
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
        """Run the node; it answers when this returns."""
        assert self._thread is None, "the broker runs already"
        data_dir = self._data_dir or Path(
            self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="millstream-"))
        )
        started: Future[str] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(data_dir, started), name="millstream-broker", daemon=True
        )
        self._thread.start()
        try:
            self.bootstrap = started.result(_START_SECONDS_MAX)
        except BaseException:
            self._thread.join(_STOP_SECONDS_MAX)
            self._thread = None
            self._cleanup.close()
            raise
        try:
            self._create_missing_topics()
        except BaseException:
            # A block that was not entered is never left.
            self.stop()
            raise

    def _create_missing_topics(self) -> None:
        if not self._topics:
            return
        # A directory that is kept has them from the first time.
        known = self._connect_admin().list_topics(timeout=_REQUEST_SECONDS_MAX).topics
        for name, partitions in self._topics.items():
            if name not in known:
                self.create_topic(name, partitions=partitions)

    def stop(self) -> None:
        """Stop cleanly and wait for it; a stopped broker can be started again."""
        if self._thread is None:
            return
        self._admin = None
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STOP_SECONDS_MAX)
        assert not self._thread.is_alive(), "the broker did not stop"
        self._thread = None
        self._cleanup.close()

    def create_topic(
        self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        from confluent_kafka.admin import NewTopic

        wanted = NewTopic(name, partitions, replication_factor=1, config=dict(configs or {}))
        [answer] = self._connect_admin().create_topics([wanted]).values()
        answer.result(_REQUEST_SECONDS_MAX)

    def delete_topic(self, name: str) -> None:
        [answer] = self._connect_admin().delete_topics([name]).values()
        answer.result(_REQUEST_SECONDS_MAX)

    def _connect_admin(self) -> "AdminClient":
        # Imported late: a test that brings its own client need not wait for this one.
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def _run(self, data_dir: Path, started: Future[str]) -> None:
        asyncio.run(self._serve(data_dir, started))

    async def _serve(self, data_dir: Path, started: Future[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            config = load_config(
                sets=[f"{name}={value}" for name, value in self._settings.items()],
                flags={
                    "log.dirs": str(data_dir),
                    "listeners": self._settings.get("listeners", "PLAINTEXT://127.0.0.1:0"),
                },
            )
            node = Node(config, dev=True)
            await node.start()
        except BaseException as failed:
            # The thread that waits in start() is the one to hear of it.
            started.set_exception(failed)
            return
        self.listeners = {each.name: f"127.0.0.1:{each.port}" for each in node.endpoints}
        started.set_result(f"127.0.0.1:{node.port}")
        await self._stop.wait()
        await node.stop()
