import pytest

from millstream.security.browsers import host_name, is_from_another_site


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost:8080", "localhost"),
        ("[::1]:80", "::1"),
        ("", ""),
        ("[", ""),
        ("evil.example", "evil.example"),
    ],
)
def test_the_name_in_a_host_header(header: str, name: str) -> None:
    assert host_name(header) == name


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, False),
        ({"origin": "http://localhost:8081"}, False),
        ({"origin": "http://localhost:8081", "sec-fetch-site": "same-origin"}, False),
        ({"sec-fetch-site": "none"}, False),
        # Through a proxy that writes another Host.
        ({"origin": "https://schemas.example", "sec-fetch-site": "same-origin"}, False),
        ({"origin": "https://schemas.example", "sec-fetch-site": "none"}, True),
        ({"origin": "http://localhost:8081", "sec-fetch-site": "cross-site"}, True),
        ({"origin": "http://localhost:3000"}, True),
        ({"origin": "http://evil.example"}, True),
        ({"origin": "null"}, True),
        ({"origin": "http://["}, True),
        ({"sec-fetch-site": "cross-site"}, True),
        ({"sec-fetch-site": "same-site"}, True),
    ],
)
def test_a_page_of_another_origin_is_recognised(headers: dict[str, str], expected: bool) -> None:
    assert is_from_another_site({"host": "localhost:8081", **headers}) is expected
