"""The OpenAPI description of /api/v1, from the same tables that the routes come from."""

import re
from collections.abc import Sequence

from millstream import __version__
from millstream.console.page import API_PREFIX, Action, Page, Parameter


def describe(pages: Sequence[Page], actions: Sequence[Action]) -> dict[str, object]:
    paths: dict[str, dict[str, object]] = {}
    for page in pages:
        path = f"{API_PREFIX}/overview" if page.path == "/" else API_PREFIX + page.path
        in_query = [_parameter(each, "query") for each in page.parameters]
        paths.setdefault(_braces(path), {})["get"] = {
            "summary": page.summary,
            "parameters": _in_path(path) + in_query,
            "responses": _responses(),
        }
    for action in actions:
        path = API_PREFIX + action.path
        fields = {each.name: {"description": each.about} for each in action.parameters}
        schema = {"type": "object", "properties": fields}
        paths.setdefault(_braces(path), {})["post"] = {
            "summary": action.summary,
            "parameters": _in_path(path),
            "requestBody": {"content": {"application/json": {"schema": schema}}},
            "responses": _responses(),
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Millstream console", "version": __version__},
        "paths": paths,
    }


def _braces(path: str) -> str:
    """Starlette writes {name:path} where OpenAPI has {name}."""
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", path)


def _in_path(path: str) -> list[dict[str, object]]:
    return [_parameter(Parameter(name, ""), "path") for name in re.findall(r"\{(\w+)", path)]


def _parameter(parameter: Parameter, where: str) -> dict[str, object]:
    found: dict[str, object] = {
        "name": parameter.name,
        "in": where,
        "required": where == "path",
        "schema": {"type": "string"},
    }
    if parameter.about:
        found["description"] = parameter.about
    return found


def _responses() -> dict[str, object]:
    content = {"application/json": {"schema": {"type": "object"}}}
    error = {"type": "object", "properties": {"error": {"type": "string"}}}
    return {
        "200": {"description": "OK", "content": content},
        "default": {
            "description": "A problem, in words",
            "content": {"application/json": {"schema": error}},
        },
    }
