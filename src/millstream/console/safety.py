"""What a browser may make the console do: checks before every request, headers on every answer.

The console has the rights of its user, so no other web site may use it through that user's
browser. A name that resolves to 127.0.0.1 gets past the browser's rules: the Host header tells.
Changes need the same origin, and a token that only our pages contain (`app` compares it). Programs
send JSON: before a foreign page may do so, its browser asks the console, which does not answer.
"""

import ipaddress
import secrets
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millstream.security.browsers import (
    LOCAL_NAMES,
    SAFE_METHODS,
    host_name,
    is_from_another_site,
)

CSRF_FIELD: Final = "csrf_token"
CSRF_HEADER: Final = "x-csrf-token"
# A record of five megabytes as a form, and some more.
BODY_BYTES_MAX: Final = 16 << 20
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: browsers would then send the origin of our own forms as null.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address to listen on."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Guard:
    """An ASGI middleware around the whole console."""

    def __init__(
        self, app: ASGIApp, *, names: Iterable[str] = (), is_read_only: bool = False
    ) -> None:
        self._app = app
        self._names = LOCAL_NAMES | {name.lower() for name in names}
        self._is_read_only = is_read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                # What is shown may be confidential, and is old at once. Files are not.
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            self._check(scope["method"], Headers(scope=scope))
        except Refused as refused:
            answer = PlainTextResponse(f"{refused}\n", refused.status)
            await answer(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _check(self, method: str, headers: Headers) -> None:
        name = host_name(headers.get("host", ""))
        if name not in self._names:
            raise Refused(
                421, f"This console does not serve the host {name!r}. Use the address it printed."
            )
        if method in SAFE_METHODS:
            return
        if method != "POST":
            raise Refused(405, "Only GET and POST are served.")
        if self._is_read_only:
            raise Refused(403, "This console was started with --read-only.")
        if is_from_another_site(headers):
            raise Refused(403, "The request comes from another web site.")
        length = headers.get("content-length", "")
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            raise Refused(413, f"A request needs a length of at most {BODY_BYTES_MAX} bytes.")


def is_token(given: object, token: str) -> bool:
    return isinstance(given, str) and secrets.compare_digest(given.encode(), token.encode())
