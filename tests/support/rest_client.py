"""Requests to a schema registry, as curl would send them."""

import base64
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

_SECONDS_MAX = 60.0
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Any
    content_type: str = ""

    @property
    def error_code(self) -> int:
        code: int = self.body["error_code"]
        return code


class RestClient:
    """`login` is `name:password`."""

    def __init__(
        self, url: str, *, login: str | None = None, trust: ssl.SSLContext | None = None
    ) -> None:
        self.url = url
        self._trust = trust
        self._headers = {}
        if login is not None:
            encoded = base64.b64encode(login.encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded}"

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, None, headers)

    def post(self, path: str, body: object) -> Answer:
        return self.send("POST", path, body)

    def put(self, path: str, body: object) -> Answer:
        return self.send("PUT", path, body)

    def delete(self, path: str) -> Answer:
        return self.send("DELETE", path, None)

    def register(self, subject: str, schema: str, **fields: object) -> Answer:
        return self.post(f"/subjects/{subject}/versions", {"schema": schema, **fields})

    def send(
        self, method: str, path: str, body: object, headers: dict[str, str] | None = None
    ) -> Answer:
        """A body of bytes is sent as it is."""
        data = None
        sent = {**self._headers, **(headers or {})}
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent.setdefault("Content-Type", CONTENT_TYPE)
        request = urllib.request.Request(self.url + path, data, sent, method=method)
        try:
            with urllib.request.urlopen(
                request, timeout=_SECONDS_MAX, context=self._trust
            ) as answer:
                return _answer(answer.status, answer.read(), answer.headers["Content-Type"])
        except urllib.error.HTTPError as refused:
            with refused:
                return _answer(refused.code, refused.read(), refused.headers["Content-Type"])


def _answer(status: int, data: bytes, content_type: str) -> Answer:
    return Answer(status, json.loads(data) if data else None, content_type)
