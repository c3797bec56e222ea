"""The REST API: requests into calls, results and refusals into JSON. Paths, shapes and error codes
are Confluent's."""

import json
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from millstream import __version__
from millstream.registry import decisions, errors
from millstream.registry.decisions import Registration
from millstream.registry.errors import RegistryError
from millstream.registry.formats.protobuf import ProtobufSchema
from millstream.registry.forwarding import FORWARDED, POSITION, forward
from millstream.registry.model import (
    Compatibility,
    Config,
    Content,
    Mode,
    Registered,
    SchemaType,
)
from millstream.registry.records import Change, compact_json, content_fields, read_references
from millstream.registry.registry import SchemaRegistry
from millstream.registry.state import RegistryState
from millstream.registry.users import Users

log = logging.getLogger(__name__)

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]

JSON_TYPES: Final = (
    "application/vnd.schemaregistry.v1+json",
    "application/vnd.schemaregistry+json",
    "application/json",
)
_BODY_TYPES: Final = (*JSON_TYPES, "application/octet-stream")
# The default limit of a record in Kafka: a longer schema could not be stored.
_BODY_BYTES_MAX: Final = 1 << 20
_SUBJECT_CHARACTERS_MAX: Final = 1_024
_POSITION_SECONDS_MAX: Final = 5.0
_FORMATS: Final = ("", "resolved", "serialized")
# Attributes of a config that are honoured; others would be promised and not kept.
_CONFIG_FIELDS: Final = {"compatibility", "compatibilityLevel", "normalize"}


def make_app(
    registry: SchemaRegistry,
    *,
    users: Users | None = None,
    trust: ssl.SSLContext | None = None,
) -> Starlette:
    """`trust` is for passing writes on to a leader that speaks TLS."""
    return Starlette(
        routes=_Api(registry, users, trust).routes(),
        exception_handlers={HTTPException: _http_error, Exception: _bug},
    )


class _Api:
    def __init__(
        self, registry: SchemaRegistry, users: Users | None, trust: ssl.SSLContext | None
    ) -> None:
        self._registry = registry
        self._state = registry.state
        self._users = users
        self._trust = trust

    def routes(self) -> list[Route]:
        subject, version = "{subject:path}", "{version}"
        of_version = f"/subjects/{subject}/versions/{version}"
        reads: list[tuple[str, Handler]] = [
            ("/", self._root),
            ("/schemas", self._schemas),
            ("/schemas/types", self._types),
            ("/schemas/ids/{id}", self._schema),
            ("/schemas/ids/{id}/schema", self._schema_text),
            ("/schemas/ids/{id}/subjects", self._subjects_of_id),
            ("/schemas/ids/{id}/versions", self._versions_of_id),
            ("/subjects", self._subjects),
            (f"{of_version}/schema", self._version_text),
            (f"{of_version}/referencedby", self._referenced_by),
            (of_version, self._version),
            (f"/subjects/{subject}/versions", self._versions),
            ("/config", self._config),
            (f"/config/{subject}", self._config),
            ("/mode", self._mode),
            (f"/mode/{subject}", self._mode),
            ("/contexts", self._contexts),
            ("/v1/metadata/id", self._metadata_id),
            ("/v1/metadata/version", self._metadata_version),
        ]
        asks: list[tuple[str, Handler]] = [
            (f"/compatibility/subjects/{subject}/versions/{version}", self._check_version),
            (f"/compatibility/subjects/{subject}/versions", self._check_all),
            (f"/subjects/{subject}/versions", self._register),
            (f"/subjects/{subject}", self._look_up),
        ]
        writes: list[tuple[str, str, Handler]] = [
            ("DELETE", of_version, self._delete_version),
            ("DELETE", f"/subjects/{subject}", self._delete_subject),
            ("PUT", "/config", self._put_config),
            ("PUT", f"/config/{subject}", self._put_config),
            ("DELETE", "/config", self._delete_config),
            ("DELETE", f"/config/{subject}", self._delete_config),
            ("PUT", "/mode", self._put_mode),
            ("PUT", f"/mode/{subject}", self._put_mode),
            ("DELETE", f"/mode/{subject}", self._delete_mode),
        ]
        by_path: dict[str, dict[str, Handler]] = {}
        for path, handler in reads:
            by_path.setdefault(path, {})["GET"] = handler
        for path, handler in asks:
            by_path.setdefault(path, {})["POST"] = handler
        for method, path, handler in writes:
            by_path.setdefault(path, {})[method] = self._by_leader(handler)
        return [
            Route(path, self._guarded(handlers), methods=list(handlers))
            for path, handlers in by_path.items()
        ]

    # -- around every request ---------------------------------------------------------

    def _guarded(self, handlers: dict[str, Handler]) -> Handler:
        async def answer(request: Request) -> Response:
            try:
                if self._users is not None:
                    header = request.headers.get("authorization", "")
                    if not await self._users.has(header):
                        return _unauthorized(request)
                _choose_type(request)
                request.state.body = await _read_body(request)
                method = "GET" if request.method == "HEAD" else request.method
                return await handlers[method](request)
            except RegistryError as refused:
                return _error(request, refused)

        return answer

    def _by_leader(self, handler: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            passed_on = await self._pass_on(request)
            if passed_on is not None:
                return passed_on
            response = await handler(request)
            response.headers[POSITION] = str(self._registry.position)
            return response

        return answer

    async def _pass_on(self, request: Request) -> Response | None:
        """The leader's answer; None if this instance is the leader."""
        leader = await self._registry.leader_elsewhere()
        if leader is None:
            return None
        if FORWARDED in request.headers:
            raise errors.forwarding_failed("the leader has changed. Try again")
        target = request.scope["raw_path"].decode("latin-1")
        if request.url.query:
            target += f"?{request.url.query}"
        found = await forward(
            leader, request.method, target, request.headers, request.state.body, self._trust
        )
        if found.position:
            # Who writes here and then reads here finds what was written.
            try:
                await self._registry.wait_position(found.position, _POSITION_SECONDS_MAX)
            except TimeoutError:
                log.warning("this instance is behind the leader by more than it should")
        return Response(found.body, found.status, media_type=found.content_type)

    # -- schemas ----------------------------------------------------------------------

    async def _root(self, request: Request) -> Response:
        return _answer(request, {})

    async def _types(self, request: Request) -> Response:
        return _answer(request, ["JSON", "PROTOBUF", "AVRO"])

    async def _contexts(self, request: Request) -> Response:
        return _answer(request, ["."])

    async def _schemas(self, request: Request) -> Response:
        prefix = _prefix(request)
        with_deleted, latest = _flag(request, "deleted"), _flag(request, "latestOnly")
        found: list[Registered] = []
        for subject in self._state.subjects(prefix=prefix):
            versions = self._all(subject, with_deleted=with_deleted)
            found += versions[-1:] if latest else versions
        return _answer(request, [_registered(one) for one in _page(request, found)])

    def _all(self, subject: str, *, with_deleted: bool) -> list[Registered]:
        if with_deleted:
            return self._state.versions(subject)
        return self._state.live_versions(subject)

    def _content(self, request: Request) -> Content:
        schema_id = _int(request.path_params["id"])
        content = None if schema_id is None else self._state.content(schema_id)
        if content is None:
            raise errors.RegistryError(40403, f"Schema {request.path_params['id']} not found")
        return content

    async def _schema(self, request: Request) -> Response:
        content = self._content(request)
        fields = content_fields(content)
        fields["schema"] = self._formatted(request, content)
        if _flag(request, "fetchMaxId"):
            fields["maxId"] = self._state.last_id
        return _answer(request, fields)

    async def _schema_text(self, request: Request) -> Response:
        return _text(request, self._formatted(request, self._content(request)))

    def _formatted(self, request: Request, content: Content) -> str:
        wanted = request.query_params.get("format", "")
        if wanted not in _FORMATS:
            raise errors.RegistryError(422, f"format {wanted!r} is not one of resolved, serialized")
        if wanted != "serialized" or content.type is not SchemaType.PROTOBUF:
            return content.text
        schema = decisions.read_schema(content, decisions.dependencies_of(self._state, content))
        assert isinstance(schema, ProtobufSchema)
        return schema.serialized()

    def _uses(self, request: Request) -> list[Registered]:
        self._content(request)
        uses = self._state.uses_of(int(request.path_params["id"]))
        wanted = request.query_params.get("subject")
        return [
            one
            for one in uses
            if (_flag(request, "deleted") or not one.is_deleted)
            and (wanted is None or one.subject == wanted)
        ]

    async def _subjects_of_id(self, request: Request) -> Response:
        subjects = sorted({one.subject for one in self._uses(request)})
        return _answer(request, _page(request, subjects))

    async def _versions_of_id(self, request: Request) -> Response:
        found = [{"subject": one.subject, "version": one.version} for one in self._uses(request)]
        return _answer(request, _page(request, found))

    # -- subjects ---------------------------------------------------------------------

    async def _subjects(self, request: Request) -> Response:
        with_deleted, deleted_only = _flag(request, "deleted"), _deleted_only(request)
        found = []
        for subject in self._state.subjects(prefix=_prefix(request)):
            is_deleted = not self._state.live_versions(subject)
            if is_deleted if deleted_only else (with_deleted or not is_deleted):
                found.append(subject)
        return _answer(request, _page(request, found))

    async def _versions(self, request: Request) -> Response:
        subject = _subject(request)
        versions = self._all(subject, with_deleted=_flag(request, "deleted"))
        if _deleted_only(request):
            versions = [one for one in self._state.versions(subject) if one.is_deleted]
        if not versions:
            raise errors.subject_not_found(subject)
        return _answer(request, _page(request, [one.version for one in versions]))

    def _one(self, request: Request) -> Registered:
        version = decisions.parse_version(request.path_params["version"])
        return decisions.get_version(
            self._state, _subject(request), version, with_deleted=_flag(request, "deleted")
        )

    async def _version(self, request: Request) -> Response:
        one = self._one(request)
        fields = _registered(one)
        fields["schema"] = self._formatted(request, one.content)
        return _answer(request, fields)

    async def _version_text(self, request: Request) -> Response:
        return _text(request, self._formatted(request, self._one(request).content))

    async def _referenced_by(self, request: Request) -> Response:
        one = self._one(request)
        referrers = self._state.referrers(one.subject, one.version)
        return _answer(request, _page(request, sorted({each.id for each in referrers})))

    async def _look_up(self, request: Request) -> Response:
        subject = _subject(request)
        versions = self._all(subject, with_deleted=_flag(request, "deleted"))
        if not versions:
            raise errors.subject_not_found(subject)
        wanted = _read_registration(request)
        content, _ = await self._registry.read(
            subject, wanted.content, normalize=_flag(request, "normalize")
        )
        found = decisions.find_version(versions, content)
        if found is None:
            raise errors.schema_not_found()
        return _answer(request, _registered(found))

    async def _register(self, request: Request) -> Response:
        subject = _subject(request)
        if not subject or len(subject) > _SUBJECT_CHARACTERS_MAX or not subject.isprintable():
            raise errors.invalid_subject(
                subject[:100], f"1 to {_SUBJECT_CHARACTERS_MAX} printable characters"
            )
        wanted = _read_registration(request)
        content, schema = await self._registry.read(
            subject, wanted.content, normalize=_flag(request, "normalize")
        )
        wanted = Registration(content, wanted.id, wanted.version)
        # What is there already needs no leader: serializers register before they send.
        held = self._registry.find(subject, wanted)
        if held is None:
            passed_on = await self._pass_on(request)
            if passed_on is not None:
                return passed_on
            held = await self._registry.register(subject, wanted, schema)
        answer = _answer(request, {"id": held.id})
        answer.headers[POSITION] = str(self._registry.position)
        return answer

    async def _delete_subject(self, request: Request) -> Response:
        subject = _subject(request)
        is_permanent = _flag(request, "permanent")
        versions: list[int] = []

        def decide(state: RegistryState) -> list[Change]:
            if is_permanent:
                changes = decisions.remove_subject(state, subject)
                versions.extend(one.version for one in state.versions(subject))
            else:
                changes = decisions.delete_subject(state, subject)
                versions.extend(one.version for one in state.live_versions(subject))
            return changes

        await self._registry.change(decide)
        return _answer(request, versions)

    async def _delete_version(self, request: Request) -> Response:
        subject = _subject(request)
        version = decisions.parse_version(request.path_params["version"])
        is_permanent = _flag(request, "permanent")
        decide = decisions.remove_version if is_permanent else decisions.delete_version
        [change] = await self._registry.change(lambda state: decide(state, subject, version))
        return _answer(request, decisions.version_of(change))

    # -- compatibility ----------------------------------------------------------------

    async def _check_version(self, request: Request) -> Response:
        subject = _subject(request)
        version = decisions.parse_version(request.path_params["version"])
        decisions.get_version(self._state, subject, version)
        content = _read_registration(request).content
        _, schema = await self._registry.read(subject, content, normalize=False)
        messages = await self._registry.check_with_one(subject, schema, version)
        return _compatibility(request, messages)

    async def _check_all(self, request: Request) -> Response:
        subject = _subject(request)
        content = _read_registration(request).content
        _, schema = await self._registry.read(subject, content, normalize=False)
        messages = await self._registry.check_with_all(subject, schema)
        return _compatibility(request, messages)

    async def _config(self, request: Request) -> Response:
        subject = _subject_or_all(request)
        own = self._state.own_config(subject)
        if subject is not None and own is None and not _flag(request, "defaultToGlobal"):
            raise errors.no_subject_config(subject)
        fields: dict[str, object] = {"compatibilityLevel": self._state.compatibility(subject)}
        if own is not None and own.normalize is not None:
            fields["normalize"] = own.normalize
        return _answer(request, fields)

    async def _put_config(self, request: Request) -> Response:
        subject = _subject_or_all(request)
        fields = _body(request)
        config = _read_config(fields)
        await self._registry.change(lambda state: decisions.set_config(state, subject, config))
        answer: dict[str, object] = {}
        if config.compatibility is not None:
            answer["compatibility"] = config.compatibility
        if config.normalize is not None:
            answer["normalize"] = config.normalize
        return _answer(request, answer)

    async def _delete_config(self, request: Request) -> Response:
        subject = _subject_or_all(request)
        before = self._state.compatibility(subject)
        await self._registry.change(lambda state: decisions.delete_config(state, subject))
        return _answer(request, {"compatibilityLevel": before})

    # -- modes ------------------------------------------------------------------------

    async def _mode(self, request: Request) -> Response:
        subject = _subject_or_all(request)
        own = self._state.own_mode(subject)
        if subject is not None and own is None and not _flag(request, "defaultToGlobal"):
            raise errors.no_subject_mode(subject)
        return _answer(request, {"mode": self._state.mode(subject)})

    async def _put_mode(self, request: Request) -> Response:
        subject = _subject_or_all(request)
        mode = _read_mode(_body(request).get("mode"))
        is_forced = _flag(request, "force")
        await self._registry.change(
            lambda state: decisions.set_mode(state, subject, mode, is_forced=is_forced)
        )
        return _answer(request, {"mode": mode})

    async def _delete_mode(self, request: Request) -> Response:
        subject = _subject(request)
        before = self._state.mode(subject)
        await self._registry.change(lambda state: decisions.delete_mode(state, subject))
        return _answer(request, {"mode": before})

    # -- about the registry -----------------------------------------------------------

    async def _metadata_id(self, request: Request) -> Response:
        clusters = {
            "kafka-cluster": self._registry.cluster_id,
            "schema-registry-cluster": self._registry.group_id,
        }
        return _answer(request, {"scope": {"path": [], "clusters": clusters}, "id": ""})

    async def _metadata_version(self, request: Request) -> Response:
        return _answer(request, {"version": f"millstream-{__version__}", "commitId": ""})


# -- requests ----------------------------------------------------------------------------


async def _read_body(request: Request) -> bytes:
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


def _body(request: Request) -> dict[str, Any]:
    try:
        value = json.loads(request.state.body)
    except (ValueError, RecursionError) as wrong:
        raise RegistryError(400, f"The request is not JSON: {wrong}") from None
    if not isinstance(value, dict):
        raise RegistryError(400, "The request is not a JSON object")
    return value


def _read_registration(request: Request) -> Registration:
    fields = _body(request)
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


def _read_config(fields: dict[str, Any]) -> Config:
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


def _read_mode(mode: object) -> Mode:
    try:
        return Mode(str(mode).upper())
    except ValueError:
        raise errors.invalid_mode(mode) from None


def _subject(request: Request) -> str:
    return _without_context(request.path_params["subject"])


def _subject_or_all(request: Request) -> str | None:
    return _subject(request) if "subject" in request.path_params else None


def _without_context(subject: str) -> str:
    """`:.:name` is `name` in the default context, which is the only one here."""
    if subject.startswith(":.:"):
        return subject.removeprefix(":.:")
    if subject.startswith(":."):
        raise errors.invalid_subject(subject, "there are no contexts here but the default one")
    return subject


def _prefix(request: Request) -> str:
    wanted = request.query_params.get("subjectPrefix", "")
    return "" if wanted == ":*:" else _without_context(wanted.removeprefix(":*:"))


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() == "true"


def _deleted_only(request: Request) -> bool:
    # The second is how confluent-kafka spells it.
    return _flag(request, "deletedOnly") or _flag(request, "deleted_only")


def _int(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else None


def _page(request: Request, found: Sequence[T]) -> list[T]:
    """`offset` and `limit`; a negative limit is none."""
    bounds = []
    for name, default in (("offset", "0"), ("limit", "-1")):
        text = request.query_params.get(name, default)
        number = _int(text.removeprefix("-"))
        if number is None:
            raise RegistryError(422, f"{name} is not a number: {text!r}")
        bounds.append(-number if text.startswith("-") else number)
    start, count = max(bounds[0], 0), bounds[1]
    return list(found[start:] if count < 0 else found[start : start + count])


# -- answers -----------------------------------------------------------------------------


def _choose_type(request: Request) -> None:
    """By the client's preference, as far as it is one of ours."""
    request.state.content_type = JSON_TYPES[0]
    wanted = [one.partition(";")[0].strip() for one in request.headers.get("accept", "").split(",")]
    for one in wanted:
        if one in JSON_TYPES:
            request.state.content_type = one
            return
    if not any(one in ("", "*/*", "application/*") for one in wanted):
        raise RegistryError(406, f"HTTP 406 Not Acceptable. Answers are {', '.join(JSON_TYPES)}")


def _answer(request: Request, value: object, status: int = 200) -> Response:
    return _text(request, compact_json(value), status)


def _text(request: Request, text: str, status: int = 200) -> Response:
    kind = getattr(request.state, "content_type", JSON_TYPES[0])
    return Response(text.encode("utf-8", "replace"), status, media_type=kind)


def _registered(one: Registered) -> dict[str, object]:
    return {
        "subject": one.subject,
        "version": one.version,
        "id": one.id,
        **content_fields(one.content),
    }


def _compatibility(request: Request, messages: Iterable[str]) -> Response:
    found = list(messages)
    fields: dict[str, object] = {"is_compatible": not found}
    if _flag(request, "verbose"):
        fields["messages"] = found
    return _answer(request, fields)


def _error(request: Request, refused: RegistryError) -> Response:
    fields = {"error_code": refused.code, "message": refused.message}
    return _answer(request, fields, refused.status)


def _unauthorized(request: Request) -> Response:
    answer = _answer(request, {"error_code": 401, "message": "Unauthorized"}, 401)
    answer.headers["www-authenticate"] = 'Basic realm="schema-registry"'
    return answer


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = f"HTTP {error.status_code} {error.detail}"
    return _answer(request, {"error_code": error.status_code, "message": text}, error.status_code)


async def _bug(request: Request, error: Exception) -> Response:
    return _answer(request, {"error_code": 500, "message": "Internal Server Error"}, 500)
