"""People log in with a user of the cluster, and see and do what that user may."""

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from millstream.client.sasl import Credentials
from millstream.client.security import Security
from millstream.console.login import COOKIE, SESSIONS_OF_USER_MAX
from tests.support.console_node import Answer, ConsoleNode

if TYPE_CHECKING:
    import playwright.sync_api

_SETTINGS = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.scram.initial.users": (
        "SCRAM-SHA-512=[name=admin,password=all-of-it];SCRAM-SHA-512=[name=alice,password=wonder]"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleNode]:
    """alice may read the topic `hers`; `secret` is not for her."""
    security = Security("SASL_PLAINTEXT", Credentials("SCRAM-SHA-512"))
    with ConsoleNode(
        tmp_path_factory.mktemp("secured"),
        settings=_SETTINGS,
        protocol="SASL_PLAINTEXT",
        security=security,
        login=True,
    ) as node:
        admin = AdminClient(
            {
                "bootstrap.servers": node.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "admin",
                "sasl.password": "all-of-it",
                "log_level": 0,
            }
        )
        for created in admin.create_topics([NewTopic("hers", 1), NewTopic("secret", 1)]).values():
            created.result(30)
        may_read = [
            AclBinding(
                ResourceType.TOPIC,
                "hers",
                ResourcePatternType.LITERAL,
                "User:alice",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for operation in (AclOperation.READ, AclOperation.DESCRIBE)
        ]
        for made in admin.create_acls(may_read).values():
            made.result(30)
        yield node


def log_in(node: ConsoleNode, user: str, password: str, after: str = "/") -> Answer:
    body = urlencode({"user": user, "password": password, "after": after}).encode()
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Origin": node.browser.url,
        "Sec-Fetch-Site": "same-origin",
    }
    return node.browser.request("POST", "/login", body, headers)


def cookie_of(answer: Answer) -> dict[str, str]:
    assert answer.status == 303, answer.text
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


def test_strangers_see_the_login_page_and_nothing_else(secured: ConsoleNode) -> None:
    web = secured.browser
    answer = web.get("/topics?page=2")
    assert answer.status == 303
    assert answer.headers["location"] == "/login?after=%2Ftopics%3Fpage%3D2"
    assert 'value="/topics?page=2"' in web.get(answer.headers["location"]).text
    for path in ("/api/v1/topics", "/metrics", "/live", "/readyz"):
        refused = web.get(path)
        assert refused.status == 401, path
        assert refused.headers["www-authenticate"].startswith("Basic")
    assert web.get("/healthz").status == 200
    assert web.get("/static/console.css").status == 200


def test_a_user_sees_what_they_may(secured: ConsoleNode) -> None:
    web = secured.browser
    answer = log_in(secured, "alice", "wonder", after="/topics")
    assert answer.headers["location"] == "/topics"
    set_cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in set_cookie
    assert "SameSite=strict" in set_cookie
    cookie = cookie_of(answer)
    page = web.request("GET", "/topics", headers=cookie)
    assert page.status == 200
    assert "hers" in page.text
    assert "secret" not in page.text
    assert "alice" in page.text
    assert web.request("GET", "/topics/secret", headers=cookie).status in (403, 404)
    # What concerns the whole node needs a permission on the cluster.
    assert web.request("GET", "/metrics", headers=cookie).status == 403


def test_a_user_does_what_they_may(secured: ConsoleNode) -> None:
    basic = base64.b64encode(b"alice:wonder").decode()
    program = {"Authorization": f"Basic {basic}", "Content-Type": "application/json"}
    web = secured.browser
    refused = web.request("POST", "/api/v1/topics", b'{"name": "new"}', program)
    assert refused.status == 403, refused.text
    basic = base64.b64encode(b"admin:all-of-it").decode()
    program = {"Authorization": f"Basic {basic}", "Content-Type": "application/json"}
    assert web.request("POST", "/api/v1/topics", b'{"name": "new"}', program).status == 200
    assert web.request("GET", "/metrics", headers=program).status == 200
    assert web.request("GET", "/readyz", headers=program).status == 200


def test_a_wrong_password_is_refused(secured: ConsoleNode) -> None:
    answer = log_in(secured, "alice", "wrong")
    assert answer.status == 401
    assert "set-cookie" not in answer.headers
    assert 'role="alert"' in answer.text
    assert "wrong" not in answer.text.partition('role="alert"')[2].partition("</div>")[2]
    basic = base64.b64encode(b"alice:wrong").decode()
    api = secured.browser.request(
        "GET", "/api/v1/topics", headers={"Authorization": f"Basic {basic}"}
    )
    assert api.status == 401


def test_guessing_passwords_takes_longer_and_longer(secured: ConsoleNode) -> None:
    for number in range(12):
        answer = log_in(secured, "bob", f"guess {number}")
        if answer.status == 429:
            break
        assert answer.status == 401
    assert answer.status == 429
    assert int(answer.headers["retry-after"]) > 0
    assert "too many wrong passwords" in answer.text
    # Other users at the same address still log in, and sessions stay open.
    cookie_of(log_in(secured, "alice", "wonder"))


def test_a_logout_ends_the_session(secured: ConsoleNode) -> None:
    cookie = cookie_of(log_in(secured, "alice", "wonder"))
    web = secured.browser
    assert web.request("GET", "/topics", headers=cookie).status == 200
    left = web.request("POST", "/logout", b"", {**cookie, "Content-Length": "0"})
    assert left.status == 303
    assert web.request("GET", "/topics", headers=cookie).status == 303


@pytest.mark.parametrize("after", ["//evil.example", "https://evil.example", "/\\evil", "/logout"])
def test_a_login_leads_nowhere_else(secured: ConsoleNode, after: str) -> None:
    assert log_in(secured, "alice", "wonder", after=after).headers["location"] == "/"


def test_another_site_cannot_log_anybody_in(secured: ConsoleNode) -> None:
    body = urlencode({"user": "alice", "password": "wonder"}).encode()
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Origin": "https://evil.example",
    }
    assert secured.browser.request("POST", "/login", body, headers).status == 403


def test_invented_cookies_open_nothing(secured: ConsoleNode) -> None:
    for cookie in (f"{COOKIE}=x", f"{COOKIE}=", "; ; =", f'{COOKIE}="\\'):
        answer = secured.browser.request("GET", "/topics", headers={"Cookie": cookie})
        assert answer.status == 303, cookie


def test_a_user_crowds_out_only_themselves(secured: ConsoleNode) -> None:
    admin = cookie_of(log_in(secured, "admin", "all-of-it"))
    first = cookie_of(log_in(secured, "alice", "wonder"))
    for _ in range(SESSIONS_OF_USER_MAX):
        cookie_of(log_in(secured, "alice", "wonder"))
    web = secured.browser
    assert web.request("GET", "/topics", headers=first).status == 303
    assert web.request("GET", "/topics", headers=admin).status == 200


def test_requests_of_a_program_that_come_together_share_a_session(secured: ConsoleNode) -> None:
    basic = base64.b64encode(b"admin:all-of-it").decode()
    headers = {"Authorization": f"Basic {basic}"}

    def ask(_: int) -> int:
        return secured.browser.request("GET", "/api/v1/topics", headers=headers).status

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(ask, range(40))) == {200}


def test_panels_without_a_topic_need_a_permission_on_the_cluster(secured: ConsoleNode) -> None:
    cookie = cookie_of(log_in(secured, "alice", "wonder"))
    for path in ("/api/v1/pipeline", "/api/v1/history?series=node.requests"):
        assert secured.browser.request("GET", path, headers=cookie).status == 403, path


def test_broken_requests_are_refused(secured: ConsoleNode) -> None:
    web = secured.browser
    assert web.request("GET", "/login", headers={"Host": "["}).status == 421
    form = {"Content-Type": "multipart/form-data"}
    assert web.request("POST", "/login", b"x", {**form, "Origin": "http://["}).status == 403
    assert web.request("POST", "/login", b"x", form).status == 400


@pytest.mark.slow
def test_a_person_logs_in_and_out_by_keyboard(
    secured: ConsoleNode, page: "playwright.sync_api.Page"
) -> None:
    page.goto(f"{secured.browser.url}/topics")
    page.locator("#user:focus").wait_for()
    page.keyboard.type("alice")
    page.keyboard.press("Tab")
    page.keyboard.type("wonder")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics")
    assert page.get_by_test_id("user").inner_text() == "alice"
    assert page.get_by_role("link", name="hers", exact=True).count() == 1
    page.get_by_role("button", name="Log out").press("Enter")
    page.wait_for_url("**/login")
