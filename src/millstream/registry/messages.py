"""What is in a request, and what an answer looks like: HTTP and JSON of the REST API."""

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from millstream.registry import errors
from millstream.registry.decisions import Registration
from millstream.registry.errors import RegistryError
from millstream.registry.formats.text import HALF_PAIR, is_unicode
from millstream.registry.model import (
    Compatibility,
    Config,
    Content,
    Mode,
    Registered,
    SchemaType,
)
from millstream.registry.records import compact_json, content_fields, read_references
from millstream.registry.users import LoginDelayed
from millstream.security.browsers import SAFE_METHODS, host_name, is_from_another_site

T = TypeVar("T")

JSON_TYPES: Final = (
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    "application/json",
)
_BODY_TYPES: Final = (*JSON_TYPES, "application/octet-stream")
# The default limit of a record in Kafka: a longer schema could not be stored.
_BODY_BYTES_MAX: Final = 1 << 20
# Attributes of a config that are honoured; others would be promised and not kept.
_CONFIG_FIELDS: Final = {"compatibility", "compatibilityLevel", "normalize"}


# -- requests ----------------------------------------------------------------------------


def check_browser(request: Request, names: Collection[str] | None) -> None:
    """Refuses what a web page asks with the browser of its reader. By `names` the registry may be
    called, if only this machine reaches it and it asks for no login."""
    name = host_name(request.headers.get("host", ""))
    if names is not None and name not in names:
        raise RegistryError(
            421,
            f"This registry does not serve the host {name!r}. Use the address it printed, or start "
            "it with --advertise",
        )
    if request.method not in SAFE_METHODS and is_from_another_site(request.headers):
        raise RegistryError(403, "The request comes from another web site")


async def read_body(request: Request) -> bytes:
    if request.method in ("GET", "HEAD", "DELETE"):
        return b""
    content_type = request.headers.get("content-type", JSON_TYPES[0]).partition(";")[0].strip()
    if content_type.lower() not in _BODY_TYPES:
        raise RegistryError(
            415, f"HTTP 415 Unsupported Media Type: {content_type}. Use {JSON_TYPES[0]}"
        )
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > _BODY_BYTES_MAX:
                raise RegistryError(413, f"The request is longer than {_BODY_BYTES_MAX} bytes")
    except ClientDisconnect:
        raise RegistryError(400, "The client has gone") from None
    return body


def read_fields(request: Request) -> dict[str, Any]:
    try:
        # From text: from bytes, json would take what is not UTF-8.
        value = json.loads(request.state.body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as wrong:
        raise RegistryError(400, f"The request is not JSON: {wrong}") from None
    if not isinstance(value, dict):
        raise RegistryError(400, "The request is not a JSON object")
    return value


def read_registration(request: Request) -> Registration:
    fields = read_fields(request)
    if not is_unicode(fields):
        raise errors.invalid_schema(HALF_PAIR)
    text = fields.get("schema")
    if not isinstance(text, str):
        raise errors.invalid_schema("the attribute schema is missing, or not a string")
    type_name = fields.get("schemaType") or SchemaType.AVRO
    if type_name not in list(SchemaType):
        known = ", ".join(SchemaType)
        raise errors.invalid_schema(f"schemaType {type_name!r} is not one of {known}")
    try:
        references = read_references(fields.get("references") or [])
    except (KeyError, TypeError, ValueError):
        raise errors.invalid_schema(
            "references is a list of objects with name, subject and version"
        ) from None
    content = Content(
        SchemaType(type_name),
        text,
        references,
        _json_or_none(fields, "metadata"),
        _json_or_none(fields, "ruleSet"),
    )
    return Registration(content, _positive(fields, "id"), _positive(fields, "version"))


def _json_or_none(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, dict):
        raise errors.invalid_schema(f"{name} is not an object")
    return None if value is None else compact_json(value)


def _positive(fields: dict[str, Any], name: str) -> int | None:
    """None also for 0 and -1, which clients send for what they do not choose."""
    value = fields.get(name)
    if value is not None and (type(value) is not int or value >= 2**31):
        raise errors.invalid_schema(f"{name} is not a number")
    return value if value is not None and value > 0 else None


def read_config(fields: dict[str, Any]) -> Config:
    unknown = sorted(set(fields) - _CONFIG_FIELDS)
    if unknown:
        raise RegistryError(
            422, f"{unknown[0]} is not supported. Supported are compatibility and normalize"
        )
    level = fields.get("compatibility", fields.get("compatibilityLevel"))
    normalize = fields.get("normalize")
    if normalize is not None and not isinstance(normalize, bool):
        raise RegistryError(422, "normalize is true or false")
    if level is None:
        if normalize is None:
            raise errors.invalid_compatibility(level)
        return Config(None, normalize)
    try:
        return Config(Compatibility(str(level).upper()), normalize)
    except ValueError:
        raise errors.invalid_compatibility(level) from None


def read_mode(mode: object) -> Mode:
    try:
        return Mode(str(mode).upper())
    except ValueError:
        raise errors.invalid_mode(mode) from None


def subject_of(request: Request) -> str:
    return _without_context(request.path_params["subject"])


def subject_or_all(request: Request) -> str | None:
    return subject_of(request) if "subject" in request.path_params else None


def _without_context(subject: str) -> str:
    """`:.:name` is `name` in the default context, which is the only one here."""
    if subject.startswith(":.:"):
        return subject.removeprefix(":.:")
    if subject.startswith(":."):
        raise errors.invalid_subject(subject, "there are no contexts here but the default one")
    return subject


def prefix_of(request: Request) -> str:
    wanted = request.query_params.get("subjectPrefix", "")
    return "" if wanted == ":*:" else _without_context(wanted.removeprefix(":*:"))


def flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() == "true"


def deleted_only(request: Request) -> bool:
    # The second is how confluent-kafka spells it.
    return flag(request, "deletedOnly") or flag(request, "deleted_only")


def whole_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else None


def page(request: Request, found: Sequence[T]) -> list[T]:
    """`offset` and `limit`; a negative limit is none."""
    bounds = []
    for name, default in (("offset", "0"), ("limit", "-1")):
        text = request.query_params.get(name, default)
        number = whole_number(text.removeprefix("-"))
        if number is None:
            raise RegistryError(422, f"{name} is not a number: {text!r}")
        bounds.append(-number if text.startswith("-") else number)
    start, count = max(bounds[0], 0), bounds[1]
    return list(found[start:] if count < 0 else found[start : start + count])


# -- answers -----------------------------------------------------------------------------


def choose_type(request: Request) -> None:
    """By the client's preference, as far as it is one of ours."""
    request.state.content_type = JSON_TYPES[0]
    wanted = [one.partition(";")[0].strip() for one in request.headers.get("accept", "").split(",")]
    for one in wanted:
        if one in JSON_TYPES:
            request.state.content_type = one
            return
    if not any(one in ("", "*/*", "application/*") for one in wanted):
        raise RegistryError(406, f"HTTP 406 Not Acceptable. Answers are {', '.join(JSON_TYPES)}")


def answer_json(request: Request, value: object, status: int = 200) -> Response:
    return answer_text(request, compact_json(value), status)


def answer_text(request: Request, text: str, status: int = 200) -> Response:
    kind = getattr(request.state, "content_type", JSON_TYPES[0])
    return Response(text.encode("utf-8", "replace"), status, media_type=kind)


def registered_fields(one: Registered) -> dict[str, object]:
    return {
        "subject": one.subject,
        "version": one.version,
        "id": one.id,
        **content_fields(one.content),
    }


def answer_compatibility(request: Request, messages: Iterable[str]) -> Response:
    found = list(messages)
    fields: dict[str, object] = {"is_compatible": not found}
    if flag(request, "verbose"):
        fields["messages"] = found
    return answer_json(request, fields)


def answer_error(request: Request, refused: RegistryError) -> Response:
    fields = {"error_code": refused.code, "message": refused.message}
    return answer_json(request, fields, refused.status)


def answer_unauthorized(request: Request) -> Response:
    answer = answer_json(request, {"error_code": 401, "message": "Unauthorized"}, 401)
    answer.headers["www-authenticate"] = 'Basic realm="schema-registry"'
    return answer


def answer_delayed(request: Request, delayed: LoginDelayed) -> Response:
    answer = answer_json(request, {"error_code": 429, "message": str(delayed)}, 429)
    answer.headers["retry-after"] = str(delayed.wait_seconds)
    return answer


async def answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = f"HTTP {error.status_code} {error.detail}"
    return answer_json(
        request, {"error_code": error.status_code, "message": text}, error.status_code
    )


async def answer_bug(request: Request, error: Exception) -> Response:
    return answer_json(request, {"error_code": 500, "message": "Internal Server Error"}, 500)
