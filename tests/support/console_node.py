"""A node with its console in a thread of the test, and a browser's requests without a browser."""

import asyncio
import faulthandler
import http.client
import json
import re
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from millstream.broker.broker import Broker as Node
from millstream.client.security import PLAINTEXT, Security
from millstream.config import load_config
from millstream.console.asking import Address, parse_address
from millstream.console.serving import (
    ConsoleServer,
    OpenSite,
    console_of_cluster,
    console_of_node,
)

_SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Browser:
    """Sends what a browser would send to one console."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.netloc = urlsplit(url).netloc

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> Answer:
        connection = http.client.HTTPConnection(self.netloc, timeout=_SECONDS_MAX)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, names, answer.read())
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        return self.request("GET", path)

    def api(self, path: str) -> Any:
        answer = self.get(f"/api/v1{path}")
        assert answer.status == 200, answer.text
        return answer.json

    @property
    def token(self) -> str:
        found = re.search(r'name="csrf-token" content="([^"]+)"', self.get("/").text)
        assert found is not None
        return found[1]

    def submit(self, path: str, **fields: str) -> Answer:
        """A form, sent from a page of the console."""
        body = urlencode({"csrf_token": self.token, **fields}).encode()
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": self.url,
            "Sec-Fetch-Site": "same-origin",
        }
        return self.request("POST", path, body, headers)

    def call(self, path: str, **fields: Any) -> Answer:
        """The same by a program."""
        body = json.dumps(fields).encode()
        return self.request("POST", f"/api/v1{path}", body, {"Content-Type": "application/json"})


class ConsoleNode:
    """`with ConsoleNode(path) as node:` runs a node and its console, each on a free port.

    With `bootstrap` only a console, of the cluster there.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        bootstrap: str = "",
        is_read_only: bool = False,
        settings: Mapping[str, str] = {},
        protocol: str = "PLAINTEXT",
        security: Security = PLAINTEXT,
        login: bool = False,
        registry_url: str | None = None,
    ) -> None:
        """With `login`, `security` says how users' names and passwords reach the node."""
        self._protocol = protocol
        self._security = security
        self._login = login
        self._registry_url = registry_url
        self._data_dir = data_dir
        self._is_read_only = is_read_only
        self._settings = settings
        self.bootstrap = bootstrap
        self.browser: Browser
        self.node: Node | None = None
        self.console: ConsoleServer
        self._thread: threading.Thread
        self.loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event

    def __enter__(self) -> Self:
        started: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(started)), daemon=True)
        self._thread.start()
        started.result(_SECONDS_MAX)
        self.browser = Browser(self.console.url)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_SECONDS_MAX)
        if self._thread.is_alive():
            # What it waits for.
            faulthandler.dump_traceback(file=sys.__stderr__)
        assert not self._thread.is_alive(), "the console did not stop"

    async def _run(self, started: "Future[None]") -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            await self._start()
        except BaseException as failed:
            started.set_exception(failed)
            return
        started.set_result(None)
        await self._stop.wait()
        await self.console.stop()
        if self.node is not None:
            await self.node.stop()

    async def _start(self) -> None:
        listen = Address("127.0.0.1", 0)
        if self._data_dir is None:
            self.console = console_of_cluster(
                [parse_address(self.bootstrap)],
                listen,
                is_read_only=self._is_read_only,
                registry_url=self._registry_url,
            )
        else:
            listeners = f"{self._protocol}://127.0.0.1:0"
            flags = {"log.dirs": str(self._data_dir), "listeners": listeners}
            sets = [f"{name}={value}" for name, value in self._settings.items()]
            self.node = Node(load_config(flags=flags, sets=sets), dev=True)
            await self.node.start()
            self.bootstrap = f"127.0.0.1:{self.node.port}"
            self.console = console_of_node(
                self.node,
                listen,
                is_read_only=self._is_read_only,
                security=self._security,
                login=self._login,
                registry_url=self._registry_url,
            )
        await self.console.start()

    @property
    def site(self) -> OpenSite:
        assert isinstance(self.console.site, OpenSite), "everyone has their own console"
        return self.console.site

    def sample(self) -> None:
        """Have the console read the cluster now."""
        reading = self.site.console.sampler.sample()
        asyncio.run_coroutine_threadsafe(reading, self.loop).result(_SECONDS_MAX)
