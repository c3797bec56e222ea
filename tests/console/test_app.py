"""Covers console/app.py, console/openapi.py, console/page.py, console/rendering.py,
console/serving.py, console/console.py, console/live.py, console/asking.py, console/reading.py,
console/sampling.py.
"""

import asyncio
import http.client
import json
import ssl
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from millstream.broker.broker import Broker as Node
from millstream.cluster.stores.memory import MemoryStore, MemoryTree
from millstream.cluster.stores.store import CoordinationFailed, OnChange
from millstream.config import load_config
from millstream.console.asking import Address, parse_address
from millstream.console.page import Values, plain
from millstream.console.pages import PAGES
from millstream.console.serving import console_of_cluster, console_of_node
from millstream.errors import StartError
from millstream.security.certificate_authority import issue, new_authority
from millstream.testing.clock import MovableClock
from tests.support.console_node import Browser, ConsoleNode

PLAIN_PAGES = [page.path for page in PAGES if "{" not in page.path]
TOPIC_PAGES = [
    page.path
    for page in PAGES
    if page.path.startswith("/topics/{topic}") and page.path.count("{") == 1
]


@pytest.mark.parametrize("path", PLAIN_PAGES)
def test_every_page_is_html_and_json(web: Browser, path: str) -> None:
    assert web.get(path).status == 200
    assert isinstance(web.api("/overview" if path == "/" else path), dict)


@pytest.mark.parametrize("path", TOPIC_PAGES)
def test_every_page_of_a_topic_is_html_and_json(web: Browser, topic: str, path: str) -> None:
    place = path.replace("{topic}", topic)
    answer = web.get(place)
    assert answer.status == 200
    assert topic in answer.text
    assert isinstance(web.api(place), dict)


def test_unknown_things_are_not_found(web: Browser) -> None:
    for path in ("/nothing", "/topics/no-such-topic", "/groups/no-such-group"):
        answer = web.get(path)
        assert (answer.status, "<h1>Not found" in answer.text) == (404, True)
        assert "error" in web.get(f"/api/v1{path}").json


def test_wrong_values_are_explained(web: Browser) -> None:
    answer = web.get("/topics?sort=beauty")
    assert answer.status == 400
    assert "sort must be one of" in answer.text


def test_openapi_names_every_page(web: Browser) -> None:
    described = web.api("/openapi.json")
    assert described["openapi"].startswith("3.1")
    for page in PAGES:
        path = "/overview" if page.path == "/" else page.path.replace(":path", "")
        assert "get" in described["paths"][f"/api/v1{path}"]


def test_health_and_readiness(web: Browser) -> None:
    assert web.get("/healthz").json == {"status": "alive"}
    assert web.get("/readyz").json["status"] == "ready"


def test_a_cluster_that_is_gone_is_said_and_not_ready() -> None:
    with ConsoleNode(bootstrap="127.0.0.1:1") as alone:
        assert alone.browser.get("/healthz").status == 200
        assert alone.browser.get("/readyz").status == 503
        answer = alone.browser.get("/")
        assert answer.status == 503
        assert "127.0.0.1:1" in answer.text


class SilentStore(MemoryStore):
    """ZooKeeper that is asked whether the node is registered, and answers only if it should."""

    answers = True

    async def exists(self, path: str, on_change: OnChange | None = None) -> bool:
        if not self.answers:
            raise CoordinationFailed("no connection to ZooKeeper")
        return await super().exists(path, on_change)


def test_a_member_is_not_ready_while_zookeeper_is_silent_or_the_node_is_fenced(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        store, clock = SilentStore(MemoryTree(), 1), MovableClock()

        async def open_session() -> SilentStore:
            if not store.answers:
                raise CoordinationFailed("no connection to ZooKeeper")
            return store

        flags = {"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0", "node.id": "1"}
        config = load_config(flags=flags)
        node = Node(config, dev=True, clock=clock, open_session=open_session)
        await node.start()
        console = console_of_node(node, Address("127.0.0.1", 0))
        await console.start()
        web = Browser(console.url)
        try:
            assert (await asyncio.to_thread(web.get, "/readyz")).status == 200
            store.answers = False
            clock.advance(seconds=store.session_timeout_ms / 3000)
            answer = await asyncio.to_thread(web.get, "/readyz")
            assert (answer.status, answer.json["status"]) == (503, "not ready")
            assert "ZooKeeper has not answered for" in answer.json["why"]
            assert (await asyncio.to_thread(web.get, "/healthz")).status == 200
            store.expire()
            answer = await asyncio.to_thread(web.get, "/readyz")
            assert (answer.status, "fenced" in answer.json["why"]) == (503, True)
        finally:
            await console.stop()
            await node.abandon()

    asyncio.run(scenario())


def test_a_console_alone_sees_the_same_cluster(console_node: ConsoleNode, topic: str) -> None:
    with ConsoleNode(bootstrap=console_node.bootstrap) as alone:
        ours, theirs = console_node.browser, alone.browser
        path = f"/topics/{topic}/partitions"
        assert theirs.api(path)["rows"] == ours.api(path)["rows"]
        assert "runs alone" in theirs.get("/clients").text
        assert "runs alone" in theirs.get(f"/topics/{topic}/storage").text


def test_the_stream_says_hello_and_announces_samples(
    console_node: ConsoleNode, web: Browser
) -> None:
    connection = http.client.HTTPConnection(web.netloc, timeout=30)
    connection.request("GET", "/live")
    stream = connection.getresponse()
    assert stream.getheader("content-type", "").startswith("text/event-stream")
    assert stream.readline() == b"event: hello\n"
    console_node.sample()
    lines = [stream.readline() for _ in range(8)]
    assert b"event: sample\n" in lines
    connection.close()


def test_the_stream_of_a_topic_sends_its_new_records(web: Browser, topic: str) -> None:
    connection = http.client.HTTPConnection(web.netloc, timeout=60)
    connection.request("GET", f"/live?topic={topic}")
    stream = connection.getresponse()
    assert stream.readline() == b"event: hello\n"
    web.submit(f"/topics/{topic}/produce", key="live", value="<b>now</b>")
    while stream.readline() != b"event: record\n":
        pass
    record = json.loads(stream.readline().removeprefix(b"data: "))
    assert (record["key"]["text"], record["value"]["text"]) == ("live", "<b>now</b>")
    connection.close()


def test_the_stream_of_a_topic_reads_each_partition_from_where_it_was(
    web: Browser, topic: str
) -> None:
    connection = http.client.HTTPConnection(web.netloc, timeout=60)
    connection.request("GET", f"/live?topic={topic}")
    stream = connection.getresponse()
    assert stream.readline() == b"event: hello\n"
    for number in range(6):
        web.submit(f"/topics/{topic}/produce", value=f"new-{number}", partition=str(number % 2))
    values = []
    while len(values) < 6:
        if stream.readline() == b"event: record\n":
            record = json.loads(stream.readline().removeprefix(b"data: "))
            values.append(record["value"]["text"])
    assert sorted(values) == [f"new-{number}" for number in range(6)]
    connection.close()


@pytest.mark.parametrize(
    ("login", "problem"),
    [(False, "without a login the console listens on this machine only"), (True, "in the clear")],
)
def test_other_addresses_need_a_login_and_tls(login: bool, problem: str) -> None:
    server = console_of_cluster([Address("127.0.0.1", 1)], Address("0.0.0.0", 0), login=login)
    with pytest.raises(StartError, match=problem):
        asyncio.run(server.start())


def test_addresses() -> None:
    assert parse_address("[::1]:80") == Address("::1", 80)
    assert parse_address("host") == Address("host", 9092)
    assert str(Address("::1", 80)) == "[::1]:80"
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address("host:port")


def test_a_view_as_json_has_fields_and_properties() -> None:
    from millstream.console.facts import PartitionFacts

    found = plain(PartitionFacts(0, 1, 2, [1, 2], [1], 5, 9))
    assert isinstance(found, dict)
    assert (found["records"], found["is_under_replicated"]) == (4, True)


def test_values_are_checked() -> None:
    from millstream.console.console import BadInput

    values = Values({"n": "12", "bad": "x", "c": "b"})
    assert values.number("n", 0) == 12
    assert values.number("absent", 7) == 7
    assert values.choice("c", ("a", "b")) == "b"
    with pytest.raises(BadInput, match="whole number"):
        values.number("bad", 0)
    with pytest.raises(BadInput, match="between"):
        values.number("n", 0, high=3)


def test_a_page_is_rendered_once_for_each_sample() -> None:
    from millstream.console.app import RenderedPages
    from millstream.console.facts import ClusterFacts

    pages, first = RenderedPages(), ClusterFacts(1, "", -1, [], {})
    pages.add(None, "", "not shared")
    assert pages.get(None, "") is None
    pages.add(first, "sort=name", "first")
    assert pages.get(first, "sort=name") == "first"
    assert pages.get(first, "") is None
    second = ClusterFacts(1, "", -1, [], {})
    assert pages.get(second, "sort=name") is None
    pages.add(second, "", "second")
    assert pages.get(first, "sort=name") is None


def test_what_was_done_is_shown_once(web: Browser, topic: str) -> None:
    answer = web.submit("/topics", name=f"noted-{topic}")
    location = answer.headers["location"]
    assert "was created" in web.get(location).text
    assert "was created" not in web.get(location).text


def test_a_console_speaks_https(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = new_authority("test authority", now=now, days=2)
    server = issue(authority, "localhost", hosts=("localhost", "127.0.0.1"), now=now, days=2)
    pem, ca = tmp_path / "server.pem", tmp_path / "ca.pem"
    pem.write_bytes(server.key + server.certificate)
    ca.write_bytes(authority.certificate)

    async def scenario() -> None:
        console = console_of_cluster(
            [Address("127.0.0.1", 1)], Address("127.0.0.1", 0), login=True, certificate=pem
        )
        await console.start()
        context = ssl.create_default_context(cafile=str(ca))
        url = f"{console.url}/login"
        assert url.startswith("https://")
        answer = await asyncio.to_thread(urllib.request.urlopen, url, None, 30, context=context)
        assert b"Log in" in answer.read()
        await console.stop()

    asyncio.run(scenario())
