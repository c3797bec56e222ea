import pytest

from millstream.console.safety import is_loopback, is_token
from tests.support.console_node import Browser, ConsoleNode

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_only_addresses_of_this_machine_are_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_token_is_compared_whole() -> None:
    assert is_token("abc", "abc")
    assert not is_token("ab", "abc")
    assert not is_token(None, "abc")


def test_a_name_that_only_resolves_to_this_machine_is_refused(web: Browser) -> None:
    answer = web.request("GET", "/", headers={"Host": "evil.example"})
    assert answer.status == 421
    assert "evil.example" in answer.text


def test_every_answer_has_the_content_policy(web: Browser) -> None:
    for path in ("/", "/static/console.css", "/api/v1/topics", "/nothing"):
        policy = web.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_a_form_without_the_token_changes_nothing(web: Browser) -> None:
    answer = web.request("POST", "/topics", b"name=without-token", FORM)
    assert answer.status == 403
    assert web.get("/api/v1/topics/without-token/partitions").status == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_a_form_of_another_site_is_refused(web: Browser, headers: dict[str, str]) -> None:
    body = f"name=foreign&csrf_token={web.token}".encode()
    assert web.request("POST", "/topics", body, {**FORM, **headers}).status == 403
    assert web.get("/api/v1/topics/foreign/partitions").status == 404


def test_the_api_takes_json_only(web: Browser) -> None:
    answer = web.request("POST", "/api/v1/topics", b'{"name":"x"}', {"Content-Type": "text/plain"})
    assert answer.status == 415


def test_a_body_that_is_too_large_is_refused_before_it_is_read(web: Browser) -> None:
    headers = {**FORM, "Content-Length": str(1 << 40)}
    assert web.request("POST", "/topics", b"", headers).status == 413


def test_other_methods_are_refused(web: Browser) -> None:
    assert web.request("DELETE", "/topics").status == 405


def test_a_read_only_console_changes_nothing(console_node: ConsoleNode) -> None:
    with ConsoleNode(bootstrap=console_node.bootstrap, is_read_only=True) as reader:
        assert reader.browser.submit("/topics", name="read-only").status == 403
        assert reader.browser.call("/topics", name="read-only").status == 403
        assert reader.browser.get("/topics").status == 200
