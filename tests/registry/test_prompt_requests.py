"""Half requests do not keep a connection of the registry or the console for ever."""

import socket
from urllib.parse import urlsplit

import pytest

from millstream.registry import prompt_requests
from millstream.testing import Broker
from tests.support.rest_client import RestClient

HALF_HEADER = b"GET /subjects HTTP/1.1\r\nHost: x\r\nX-Half: "
HALF_BODY = b"POST /subjects/s/versions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
WHOLE = b"GET /subjects HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(autouse=True)
def short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_requests, "REQUEST_SECONDS_MAX", 0.2)


@pytest.mark.parametrize(
    "sent", [b"", HALF_HEADER, HALF_BODY, WHOLE + HALF_HEADER], ids=["none", "half", "body", "2nd"]
)
def test_a_request_that_does_not_arrive_ends_its_connection(
    registry_broker: Broker, sent: bytes
) -> None:
    address = urlsplit(registry_broker.registry_url)
    with socket.create_connection((address.hostname, address.port), 10) as sock:
        sock.sendall(sent)
        try:
            while sock.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass


def test_requests_that_arrive_are_answered(rest: RestClient) -> None:
    for _ in range(3):
        assert rest.get("/subjects").status == 200
