"""One node with a console for the tests of a module; each test makes its own topics."""

import shutil
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.console_node import Browser, ConsoleNode

if TYPE_CHECKING:
    import playwright.sync_api

_SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def console_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleNode]:
    with ConsoleNode(tmp_path_factory.mktemp("console-node")) as node:
        yield node


@pytest.fixture
def web(console_node: ConsoleNode) -> Browser:
    return console_node.browser


@pytest.fixture
def topic(console_node: ConsoleNode) -> str:
    """A new topic of two partitions with ten records: keys k0 to k9, each with a header."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": console_node.bootstrap, "log_level": 0})
    [created] = admin.create_topics([NewTopic(name, 2, 1)]).values()
    created.result(_SECONDS_MAX)
    producer = Producer({"bootstrap.servers": console_node.bootstrap, "log_level": 0})
    for number in range(10):
        producer.produce(
            name,
            f'{{"number": {number}}}'.encode(),
            key=f"k{number}".encode(),
            partition=number % 2,
            headers=[("origin", f"test-{number}".encode())],
        )
    assert producer.flush(_SECONDS_MAX) == 0
    console_node.sample()
    return name


@pytest.fixture(scope="module")
def chromium() -> "Iterator[playwright.sync_api.Browser]":
    """Debian's Chromium, as root and without a screen; it must not call home.

    Only while the module's tests run: the driver keeps a loop running in this thread, and other
    tests run their own.
    """
    from playwright.sync_api import sync_playwright

    quiet = ("networking", "timer-throttling")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=[
                *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
                *(f"--disable-background-{each}" for each in quiet),
                *("--disable-component-update", "--disable-sync"),
            ],
        )
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: "playwright.sync_api.Browser") -> "Iterator[playwright.sync_api.Page]":
    context = chromium.new_context()
    yield context.new_page()
    context.close()
