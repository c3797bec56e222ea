"""The web application: pages as HTML and JSON, actions, live data, and errors in plain words."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from millstream.console import live
from millstream.console.allowed import require_describe_cluster
from millstream.console.asking import AskFailed
from millstream.console.console import BadInput, Console, NotFound
from millstream.console.facts import ClusterFacts
from millstream.console.metrics.client_metrics import expose_pushed
from millstream.console.metrics.exposition import CONTENT_TYPE, expose
from millstream.console.metrics.table import Snapshot
from millstream.console.openapi import describe
from millstream.console.page import API_PREFIX, Action, Page, Values, plain
from millstream.console.pages import ACTIONS, PAGES
from millstream.console.rendering import render
from millstream.console.safety import CSRF_FIELD, CSRF_HEADER, Guard, is_token
from millstream.errors import KafkaCode

log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]

# Queries that are kept for each page and sample.
_RENDERED_MAX: Final = 16
_STATIC: Final = Path(__file__).parent / "static"
_NAVIGATION: Final = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/nodes", "Nodes"),
    ("/clients", "Clients"),
    ("/transactions", "Transactions"),
    ("/security", "Security"),
    ("/pipeline", "Pipeline"),
)
_NOT_FOUND_CODES: Final = frozenset(
    {KafkaCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaCode.GROUP_ID_NOT_FOUND}
)
_FORBIDDEN_CODES: Final = frozenset(
    {
        KafkaCode.TOPIC_AUTHORIZATION_FAILED,
        KafkaCode.GROUP_AUTHORIZATION_FAILED,
        KafkaCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
# The codes of a cluster that cannot answer; every other one is about what was asked.
_UNAVAILABLE_CODES: Final = frozenset(
    {
        KafkaCode.NETWORK_EXCEPTION,
        KafkaCode.BROKER_NOT_AVAILABLE,
        KafkaCode.SASL_AUTHENTICATION_FAILED,
    }
)


class CachedFiles(StaticFiles):
    """Files of ours: they change with the version only."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        answer: Response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        answer.headers["cache-control"] = "public, max-age=3600"
        return answer


def make_app(console: Console, names: list[str]) -> Guard:
    """The whole console; `names` are those it may be called by, beside the local ones."""
    routes: list[BaseRoute] = [Route("/live", live.endpoint(console)), _files()]
    api_description = describe(PAGES, ACTIONS)

    async def openapi(request: Request) -> Response:
        return JSONResponse(api_description)

    routes.append(Route(f"{API_PREFIX}/openapi.json", openapi))
    routes.append(Route("/metrics", _metrics(console)))
    routes.append(Route("/healthz", _health))
    routes.append(Route("/readyz", _readiness(console)))
    for page in PAGES:
        routes.append(Route(page.path, _html(console, page)))
        routes.append(Route(_api_path(page.path), _json(console, page)))
    for action in ACTIONS:
        routes.append(Route(action.path, _form(console, action), methods=["POST"]))
        api_path = _api_path(action.path)
        routes.append(Route(api_path, _call(console, action), methods=["POST"]))
    app = Starlette(routes=routes, exception_handlers={HTTPException: _http_error(console)})
    return Guard(app, names=names, is_read_only=console.is_read_only)


def open_app() -> Starlette:
    """What a stranger may see of a console that wants a login."""
    return Starlette(routes=[_files(), Route("/healthz", _health)])


def _files() -> Mount:
    return Mount("/static", CachedFiles(directory=_STATIC), name="static")


def _api_path(path: str) -> str:
    return f"{API_PREFIX}/overview" if path == "/" else API_PREFIX + path


def _html(console: Console, page: Page) -> Handler:
    rendered = RenderedPages()

    async def show(request: Request) -> Response:
        values = Values({**request.query_params, **request.path_params})
        is_shared = page.is_of_sample and not values.has("note")
        try:
            facts = await console.facts() if is_shared else None
            known = rendered.get(facts, request.url.query)
            if known is not None:
                return HTMLResponse(known)
            view = await page.view(console, values)
        except _SHOWN as problem:
            return _error_page(console, request.scope, problem)
        html = render(page.template, view=view, **_surroundings(console, request.scope, values))
        rendered.add(facts, request.url.query, html)
        return HTMLResponse(html)

    return show


class RenderedPages:
    """Pages of one sample, by their queries: ten open consoles cost little more than one."""

    def __init__(self) -> None:
        self._facts: ClusterFacts | None = None
        self._pages: dict[str, str] = {}

    def get(self, facts: ClusterFacts | None, query: str) -> str | None:
        """None without `facts`, too: then the page is not shared."""
        if facts is None or facts is not self._facts:
            return None
        return self._pages.get(query)

    def add(self, facts: ClusterFacts | None, query: str, html: str) -> None:
        if facts is None:
            return
        if facts is not self._facts:
            self._facts, self._pages = facts, {}
        if len(self._pages) < _RENDERED_MAX:
            self._pages[query] = html


def _json(console: Console, page: Page) -> Handler:
    async def show(request: Request) -> Response:
        values = Values({**request.query_params, **request.path_params})
        try:
            view = await page.view(console, values)
        except _SHOWN as problem:
            return JSONResponse({"error": str(problem)}, _status(problem))
        return JSONResponse(plain(view))

    return show


def _form(console: Console, action: Action) -> Handler:
    async def run(request: Request) -> Response:
        async with request.form() as form:
            texts = {name: value for name, value in form.items() if isinstance(value, str)}
        token = texts.pop(CSRF_FIELD, None) or request.headers.get(CSRF_HEADER)
        if not is_token(token, console.token):
            problem = BadInput(
                "The form has no valid token. Load the page again: perhaps the console restarted."
            )
            return _error_page(console, request.scope, problem, status=403)
        try:
            done = await action.run(console, Values({**texts, **request.path_params}))
        except _SHOWN as problem:
            return _error_page(console, request.scope, problem)
        key = console.notes.add(done.text)
        joint = "&" if "?" in done.url else "?"
        return RedirectResponse(f"{done.url}{joint}note={quote(key)}", 303)

    return run


def _call(console: Console, action: Action) -> Handler:
    async def run(request: Request) -> Response:
        # Another web site cannot send this type without asking first, which is not answered.
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return JSONResponse({"error": "Send Content-Type: application/json."}, 415)
        try:
            given = json.loads(await request.body() or b"{}")
            if not isinstance(given, dict):
                raise BadInput("Send a JSON object.")
            texts = {name: _as_text(value) for name, value in given.items() if value is not None}
            done = await action.run(console, Values({**texts, **request.path_params}))
        except (ValueError, RecursionError):
            return JSONResponse({"error": "This is not JSON."}, 400)
        except _SHOWN as problem:
            return JSONResponse({"error": str(problem)}, _status(problem))
        return JSONResponse({"done": done.text, "url": done.url, **done.values})

    return run


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _metrics(console: Console) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            facts = await console.facts()
            await require_describe_cluster(console)
        except AskFailed as failed:
            return PlainTextResponse(f"{failed}\n", _status(failed))
        snapshot = Snapshot(facts, None if console.node is None else console.node.numbers())
        pushed = [] if console.node is None else console.node.all_pushed_metrics()
        # Ten thousand partitions are a hundred thousand lines: not on the loop.
        text = await asyncio.to_thread(lambda: expose(snapshot) + expose_pushed(pushed))
        return Response(text, media_type=CONTENT_TYPE)

    return answer


async def _health(request: Request) -> Response:
    """The process runs its loop; nothing else is asked."""
    return JSONResponse({"status": "alive"})


def _readiness(console: Console) -> Handler:
    async def answer(request: Request) -> Response:
        why = None if console.node is None else console.node.why_not_ready()
        if why is not None:
            return JSONResponse({"status": "not ready", "why": why}, 503)
        try:
            facts = await console.facts()
        except AskFailed as failed:
            return JSONResponse({"status": "not ready", "why": str(failed)}, 503)
        return JSONResponse({"status": "ready", "nodes": len(facts.nodes)})

    return answer


_SHOWN: Final = (AskFailed, BadInput, NotFound)


def _status(problem: Exception) -> int:
    if isinstance(problem, NotFound):
        return 404
    if not isinstance(problem, AskFailed):
        return 400
    if problem.code in _NOT_FOUND_CODES:
        return 404
    if problem.code in _FORBIDDEN_CODES:
        return 403
    return 503 if problem.code in _UNAVAILABLE_CODES else 422


def _error_page(
    console: Console, scope: Scope, problem: Exception, *, status: int | None = None
) -> HTMLResponse:
    found = status or _status(problem)
    page = render(
        "error.html",
        problem=str(problem),
        status=found,
        **_surroundings(console, scope, Values({})),
    )
    return HTMLResponse(page, found)


def _http_error(console: Console) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if request.url.path.startswith(API_PREFIX):
            return JSONResponse({"error": error.detail}, error.status_code)
        return _error_page(console, request.scope, NotFound(error.detail), status=error.status_code)

    return answer


def _surroundings(console: Console, scope: Scope, values: Values) -> Mapping[str, object]:
    """What the frame around every page shows."""
    path: str = scope["path"]
    query: str = scope.get("query_string", b"").decode("latin-1")
    return {
        "path": path,
        "api_url": _api_path(quote(path)) + (f"?{query}" if query else ""),
        "navigation": [
            (url, name, path == url or (url != "/" and path.startswith(url)))
            for url, name in _NAVIGATION
        ],
        "csrf_field": CSRF_FIELD,
        "token": console.token,
        "note": console.notes.take(values.text("note")),
        "is_read_only": console.is_read_only,
        "user": console.user,
        "has_node": console.node is not None,
        "is_live": values.text("live") != "0",
        "failure": console.sampler.failure,
        "now_ms": console.clock.now_ms(),
    }
