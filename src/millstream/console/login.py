"""Logging in to the console: each person works with their own user of the cluster.

A session has its own connections to the cluster, made with the name and password that were
entered, so it sees and does what that user may. A browser keeps a cookie, programs send the
name and password with every request (HTTP Basic). Sessions are in memory: a restart ends them.
"""

import asyncio
import base64
import binascii
import hashlib
import logging
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.clock import Clock
from millstream.console.asking import AskFailed
from millstream.console.console import Console
from millstream.console.page import API_PREFIX
from millstream.console.rendering import render
from millstream.errors import KafkaCode
from millstream.security.login_attempts import LoginAttempts
from millstream.wire.apis.metadata import MetadataRequest

log = logging.getLogger(__name__)

COOKIE: Final = "millstream_console"
# Each samples the cluster by itself.
SESSIONS_MAX: Final = 20
SESSIONS_OF_USER_MAX: Final = 5
IDLE_SECONDS_MAX: Final = 8 * 3600.0
# Of names and passwords that are being tried; others wait.
_TRIES_AT_ONCE: Final = 4
_NAME_CHARACTERS_MAX: Final = 200
# A stranger who sends a form slowly occupies a connection.
_FORM_SECONDS_MAX: Final = 10.0
# What a stranger may see: files of ours, and whether the console runs.
_OPEN: Final = ("/static/", "/healthz")
_PROGRAMS: Final = (API_PREFIX, "/metrics", "/readyz", "/live")

# A console that works as this user; it has not started.
NewConsole = Callable[[str, str], Console]


class LoginDelayed(AskFailed):
    """Too many wrong passwords: the cluster was not asked."""

    def __init__(self, wait_seconds: float) -> None:
        self.wait_seconds = math.ceil(wait_seconds)
        super().__init__(
            f"too many wrong passwords: wait {self.wait_seconds} s before you try again"
        )


@dataclass(slots=True)
class Session:
    console: Console
    app: ASGIApp
    used_at: float
    # Of the name and password of a program, which sends them every time; None for a browser.
    secret_digest: bytes | None = None


class Logins:
    """The sessions, by the secrets that open them."""

    def __init__(
        self,
        new_console: NewConsole,
        make_app: Callable[[Console], ASGIApp],
        clock: Clock,
    ) -> None:
        self._new_console = new_console
        self._make_app = make_app
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._attempts = LoginAttempts(clock)
        self._tries = asyncio.Semaphore(_TRIES_AT_ONCE)
        self._opening = asyncio.Lock()
        # Digests of programs' secrets are of no use to anyone who reads this memory later.
        self._salt = secrets.token_bytes(16)

    def find(self, key: str) -> Session | None:
        session = self._sessions.get(key)
        now = self._clock.monotonic()
        if session is None or now - session.used_at > IDLE_SECONDS_MAX:
            return None
        session.used_at = now
        return session

    async def open(self, user: str, password: str, address: str) -> str:
        """The key of a new session, for somebody at `address`. Raises AskFailed if the cluster
        does not take the user, and LoginDelayed."""
        if not user or len(user) > _NAME_CHARACTERS_MAX:
            raise AskFailed("enter the name of a user")
        console = self._new_console(user, password)
        try:
            async with self._tries:
                await self._try(console, user, address)
        except BaseException:
            console.client.close()
            raise
        ended = [self._sessions.pop(key) for key in self._crowded_out(user)]
        console.start()
        key = secrets.token_urlsafe(32)
        self._sessions[key] = Session(console, self._make_app(console), self._clock.monotonic())
        log.info("console: %s has logged in", user)
        for session in ended:
            await session.console.stop()
            session.console.close()
        return key

    async def _try(self, console: Console, user: str, address: str) -> None:
        # Not before it is this login's turn: those ahead of it may have been wrong.
        wait_seconds = self._attempts.wait_seconds(user, address)
        if wait_seconds > 0:
            raise LoginDelayed(wait_seconds)
        try:
            await console.client.ask_any(MetadataRequest(topics=[]))
        except AskFailed as failed:
            if failed.code == KafkaCode.SASL_AUTHENTICATION_FAILED:
                self._attempts.note_wrong(user, address)
            raise
        self._attempts.note_right(user, address)

    async def of_program(self, user: str, password: str, address: str) -> Session:
        """The same session for the same name and password. Raises AskFailed."""
        digest = hashlib.sha256(self._salt + f"{user}\0{password}".encode()).digest()
        known = self._of_digest(digest)
        if known is not None:
            return known
        # Requests that come together want one session, not one each.
        async with self._opening:
            known = self._of_digest(digest)
            if known is not None:
                return known
            key = await self.open(user, password, address)
            session = self._sessions.get(key)
            if session is None:
                raise AskFailed("too many people log in at this moment")
            session.secret_digest = digest
            return session

    def _of_digest(self, digest: bytes) -> Session | None:
        for key, session in self._sessions.items():
            known = session.secret_digest
            if known is not None and secrets.compare_digest(known, digest):
                return self.find(key)
        return None

    async def close(self, key: str) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            await session.console.stop()
            session.console.close()

    async def close_all(self) -> None:
        for key in list(self._sessions):
            await self.close(key)

    def _crowded_out(self, user: str) -> list[str]:
        """Sessions that end when this user opens another: idle ones, and the user's own that were
        used least lately; then those of others."""
        now = self._clock.monotonic()
        by_use = sorted(self._sessions, key=lambda key: self._sessions[key].used_at)
        ended = [key for key in by_use if now - self._sessions[key].used_at > IDLE_SECONDS_MAX]
        staying = [key for key in by_use if key not in ended]
        own = [key for key in staying if self._sessions[key].console.user == user]
        ended += own[: max(len(own) - SESSIONS_OF_USER_MAX + 1, 0)]
        staying = [key for key in staying if key not in ended]
        return ended + staying[: max(len(staying) - SESSIONS_MAX + 1, 0)]


class LoginGate:
    """An ASGI application: requests of a session go on to it, the others to the login page."""

    def __init__(self, logins: Logins, open_app: ASGIApp, *, has_tls: bool) -> None:
        """`open_app` answers what a stranger may ask."""
        self._logins = logins
        self._open_app = open_app
        self._has_tls = has_tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.startswith(_OPEN):
            await self._open_app(scope, receive, send)
            return
        request = Request(scope, receive)
        if path == "/login":
            answer = await (self._enter(request) if request.method == "POST" else _page(request))
        elif path == "/logout" and request.method == "POST":
            answer = await self._leave(request)
        else:
            try:
                session = await self._session(request)
            except AskFailed as refused:
                answer = JSONResponse({"error": str(refused)}, *_refusal(refused))
            else:
                if session is not None:
                    await session.app(scope, receive, send)
                    return
                answer = _stranger(path, request.url.query)
        await answer(scope, receive, send)

    async def _session(self, request: Request) -> Session | None:
        """Raises AskFailed for a program whose name or password is wrong."""
        basic = _basic(request.headers.get("authorization", ""))
        if basic is not None:
            return await self._logins.of_program(*basic, _peer(request))
        return self._logins.find(_cookie(request))

    async def _enter(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(_FORM_SECONDS_MAX):
                form = await request.form(max_files=0, max_fields=10)
        except TimeoutError:
            return PlainTextResponse("The form did not arrive in time.\n", 408)
        except (MultiPartException, HTTPException):
            return PlainTextResponse("This is not the form of the login page.\n", 400)
        user, password = str(form.get("user", "")), str(form.get("password", ""))
        after = str(form.get("after", "/"))
        try:
            key = await self._logins.open(user, password, _peer(request))
        except AskFailed as refused:
            log.warning("console: login of %.200r from %s refused", user, _peer(request))
            status, headers = _refusal(refused)
            page = _login_page(after, user=user, problem=str(refused), status=status)
            page.headers.update(headers)
            return page
        await self._logins.close(_cookie(request))
        answer = RedirectResponse(_local(after), 303)
        answer.set_cookie(
            COOKIE, key, httponly=True, samesite="strict", secure=self._has_tls, path="/"
        )
        return answer

    async def _leave(self, request: Request) -> Response:
        await self._logins.close(_cookie(request))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE, path="/")
        return answer


async def _page(request: Request) -> Response:
    return _login_page(request.query_params.get("after", "/"))


def _login_page(after: str, *, user: str = "", problem: str = "", status: int = 200) -> Response:
    text = render("login.html", after=_local(after), user=user, problem=problem)
    return HTMLResponse(text, status)


def _refusal(problem: AskFailed) -> tuple[int, dict[str, str]]:
    """The status and the headers of an answer that refuses a login."""
    if isinstance(problem, LoginDelayed):
        return 429, {"retry-after": str(problem.wait_seconds)}
    return 401, {}


def _stranger(path: str, query: str) -> Response:
    if path.startswith(_PROGRAMS):
        text = "log in: send the name and password of a user (HTTP Basic), or a session's cookie"
        return JSONResponse({"error": text}, 401, {"www-authenticate": 'Basic realm="Millstream"'})
    wanted = f"{path}?{query}" if query else path
    return RedirectResponse(f"/login?after={quote(wanted, safe='')}", 303)


def _local(path: str) -> str:
    """A path of this console, whatever a link says."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\", "/login", "/logout"))
    return path if is_local and path.isprintable() else "/"


def _cookie(request: Request) -> str:
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _basic(header: str) -> tuple[str, str] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if colon else None


def _peer(request: Request) -> str:
    return "somewhere" if request.client is None else request.client.host
