"""The console in a real browser: every page, the common jobs, hostile content.

Covers console/static, console/templates, console/app.py.
"""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import axe_playwright_python
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from playwright.sync_api import Page, expect

from millstream.console.pages import PAGES
from tests.support.console_node import Browser, ConsoleNode
from tests.support.otlp import gauge, metrics_data
from tests.support.raw_client import RawClient
from tests.support.share_member import RELEASE, ShareMember, set_group_options
from tests.support.telemetry import push_as_new_client, subscribe

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SECONDS_MAX = 60
WAIT_MS = SECONDS_MAX * 1000
expect.set_options(timeout=WAIT_MS)


@pytest.fixture
def tab(page: Page, console_node: ConsoleNode) -> Iterator[Page]:
    """A page that must have no errors, open no dialog and ask nobody but the console."""
    problems: list[str] = []
    page.set_default_timeout(WAIT_MS)
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on(
        "dialog", lambda dialog: (problems.append(f"dialog: {dialog.message}"), dialog.dismiss())
    )
    page.on(
        "console",
        lambda message: message.type == "error" and problems.append(f"console: {message.text}"),
    )
    own = console_node.browser.netloc
    page.on(
        "request",
        lambda request: (
            urlsplit(request.url).netloc not in (own, "")
            and problems.append(f"request to {request.url}")
        ),
    )
    yield page
    page.goto("about:blank")
    assert problems == []


def url(node: ConsoleNode, path: str) -> str:
    return node.browser.url + path


def test_every_page_opens_in_light_and_dark(
    tab: Page, console_node: ConsoleNode, topic: str
) -> None:
    commit(console_node, f"opens-{topic}", topic, 2)
    name = "org.apache.kafka.producer.node.request.latency.max." * 3
    with RawClient(console_node.bootstrap) as client:
        subscribe(client, {"metrics": "*"})
        instance = push_as_new_client(client, metrics_data(gauge(name, 0.5, topic=topic)))
        subscribe(client, {"metrics": None})
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for page in PAGES:
            path = page.path.replace("{topic}", topic).replace("{group:path}", f"opens-{topic}")
            path = path.replace("{partition}", "0").replace("{offset}", "1")
            path = path.replace("{instance}", instance)
            answer = tab.goto(url(console_node, path))
            assert answer is not None
            assert answer.status == 200, path
            expect(tab.locator("h1")).to_be_visible()
            # Nothing is wider than the window: tables scroll by themselves.
            width = "document.documentElement.scrollWidth <= innerWidth"
            assert tab.evaluate(width), path
            assert serious_problems(tab) == [], f"{path}, {scheme}"


def test_a_queue_is_shown_in_light_and_dark(
    tab: Page, console_node: ConsoleNode, topic: str, tmp_path: Path
) -> None:
    group = f"queue-{topic}"
    with RawClient(console_node.bootstrap) as client:
        set_group_options(client, group, share_auto_offset_reset="earliest")
    with ShareMember(console_node.bootstrap, group, topic) as member:
        member.join()
        member.fetch(wait_ms=WAIT_MS)
        member.acknowledge((0, 1, [RELEASE]))
        for scheme in ("light", "dark"):
            tab.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            tab.goto(url(console_node, f"/groups/{group}"))
            tab.get_by_role("link", name="Queue").click()
            expect(tab.locator("h1")).to_have_text("Queue")
            expect(tab.get_by_test_id("range-row").first).to_contain_text("retried")
            expect(tab.get_by_test_id("range-row").nth(1)).to_contain_text(member.member_id)
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert serious_problems(tab) == [], scheme
            tab.screenshot(path=tmp_path / f"queue-{scheme}.png", full_page=True)


# The rules of the Web Content Accessibility Guidelines, in the page itself.
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


def serious_problems(tab: Page) -> list[str]:
    """What axe calls serious or critical, and where."""
    tab.evaluate(AXE)
    found = tab.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


def commit(node: ConsoleNode, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()
    node.sample()


def test_a_topic_is_created_filled_searched_and_deleted_by_keyboard_alone(
    tab: Page, console_node: ConsoleNode
) -> None:
    tab.goto(url(console_node, "/topics"))
    tab.get_by_role("link", name="Create a topic").focus()
    tab.keyboard.press("Enter")
    expect(tab.get_by_label("Name")).to_be_focused()
    tab.keyboard.type("by-keyboard")
    tab.keyboard.press("Enter")
    expect(tab.get_by_test_id("note")).to_contain_text("was created")

    tab.get_by_role("link", name="Produce").focus()
    tab.keyboard.press("Enter")
    tab.get_by_label("Key").focus()
    tab.keyboard.type("the-key")
    tab.keyboard.press("Tab")
    tab.keyboard.type("a needle")
    tab.get_by_role("button", name="Produce").focus()
    tab.keyboard.press("Enter")
    expect(tab.get_by_test_id("record-row")).to_have_count(1)

    tab.keyboard.press("/")
    tab.keyboard.type("needle")
    tab.keyboard.press("Enter")
    expect(tab.get_by_test_id("scan")).to_contain_text("Scanned 1 of 1 records, 1 hit")
    tab.keyboard.press("j")
    tab.keyboard.press("Enter")
    expect(tab.get_by_test_id("value")).to_have_text("a needle")

    consumer = Consumer({"bootstrap.servers": console_node.bootstrap, "group.id": "keyboard"})
    consumer.assign([TopicPartition("by-keyboard", 0, 0)])
    message = consumer.poll(SECONDS_MAX)
    consumer.close()
    assert message is not None
    assert (message.key(), message.value()) == (b"the-key", b"a needle")

    tab.get_by_role("link", name="Partitions").focus()
    tab.keyboard.press("Enter")
    tab.get_by_label("Type its name").focus()
    tab.keyboard.type("by-keyboard")
    tab.keyboard.press("Enter")
    expect(tab.get_by_test_id("note")).to_contain_text("was deleted")
    admin = AdminClient({"bootstrap.servers": console_node.bootstrap, "log_level": 0})
    assert "by-keyboard" not in admin.list_topics(timeout=SECONDS_MAX).topics


def test_offsets_are_reset_after_a_look_at_the_plan(
    tab: Page, console_node: ConsoleNode, topic: str
) -> None:
    group = f"browser-{topic}"
    commit(console_node, group, topic, 2)
    tab.goto(url(console_node, f"/groups/{group}"))
    tab.get_by_role("link", name="Reset offsets").click()
    tab.get_by_label("To", exact=True).fill("end")
    tab.get_by_role("button", name="Show what would change").click()
    expect(tab.get_by_test_id("move-row")).to_contain_text("+3")
    tab.get_by_test_id("apply").click()
    expect(tab.get_by_test_id("lag")).to_have_text("0")
    consumer = Consumer({"bootstrap.servers": console_node.bootstrap, "group.id": group})
    [found] = consumer.committed([TopicPartition(topic, 0)], timeout=SECONDS_MAX)
    consumer.close()
    assert found.offset == 5


def test_new_records_and_numbers_appear_without_a_reload(
    tab: Page, console_node: ConsoleNode, web: Browser, topic: str
) -> None:
    tab.goto(url(console_node, f"/topics/{topic}"))
    expect(tab.locator("#live-state")).to_have_text("live")
    tab.evaluate("window.isSamePage = true")
    with tab.expect_response(lambda answer: "/live?topic=" in answer.url):
        tab.get_by_role("button", name="Live").click()
    expect(tab.locator("#live-state")).to_have_text("live")
    web.call(f"/topics/{topic}/produce", key="fresh", value="<i>just now</i>")
    expect(tab.get_by_test_id("record-row").first).to_contain_text("<i>just now</i>")
    console_node.sample()
    expect(tab.locator('[data-value="records"]')).to_have_text("11")
    assert tab.evaluate("window.isSamePage")


def test_charts_are_drawn_and_the_theme_is_kept(tab: Page, console_node: ConsoleNode) -> None:
    tab.goto(url(console_node, "/?live=0"))
    expect(tab.locator(".plot canvas").first).to_be_visible()
    expect(tab.locator("#live-state")).to_have_text("paused")
    before = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.get_by_role("button", name="Switch between dark and light").click()
    after = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert before != after
    tab.reload()
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == after


def test_hostile_content_is_shown_and_does_nothing(
    tab: Page, console_node: ConsoleNode, web: Browser, topic: str
) -> None:
    attack = "<script>alert(1)</script><img src=x onerror=alert(2)>'\"><svg onload=alert(3)>"
    large = attack.encode() * (5_000_000 // len(attack) + 1)
    done = web.call(f"/topics/{topic}/config", name="max.message.bytes", value="6000000")
    assert done.status == 200, done.text
    producer = Producer(
        {
            "bootstrap.servers": console_node.bootstrap,
            "client.id": attack,
            "message.max.bytes": 6_000_000,
            "log_level": 0,
        }
    )
    contents = (attack.encode(), b"\xff\x00\x1b[2J" + attack.encode(), large)
    for content in contents:
        producer.produce(
            topic, content, key=attack, headers=[(attack, content[:1000])], partition=0
        )
    assert producer.flush(SECONDS_MAX) == 0
    commit(console_node, attack, topic, 0)
    tab.goto(url(console_node, f"/topics/{topic}?partition=0"))
    expect(tab.locator("#records")).to_contain_text("<script>alert(1)</script>")
    for path in (
        *(f"/topics/{topic}/records/0/{offset}" for offset in (5, 6, 7)),
        *(f"/topics/{topic}/batch?offset=5", f"/topics/{topic}?q=script", "/groups", "/clients"),
        *("/", f"/topics/{topic}/consumers", "/topics"),
    ):
        tab.goto(url(console_node, path))
        assert tab.evaluate("document.querySelectorAll('svg[onload], img[onerror]').length") == 0
    tab.goto(url(console_node, f"/groups?q={topic[:0]}"))
    tab.get_by_role("link", name=attack).click()
    expect(tab.locator("h1")).to_contain_text("<script>alert(1)</script>")
