"""The REST API: paths, and what happens for each. Paths, shapes and error codes are Confluent's."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream import __version__
from millstream.registry import decisions, errors
from millstream.registry.decisions import Registration
from millstream.registry.errors import RegistryError
from millstream.registry.formats.protobuf import ProtobufSchema
from millstream.registry.forwarding import FORWARDED, POSITION, forward
from millstream.registry.messages import (
    answer_bug,
    answer_compatibility,
    answer_delayed,
    answer_error,
    answer_http_error,
    answer_json,
    answer_text,
    answer_unauthorized,
    check_browser,
    choose_type,
    deleted_only,
    flag,
    page,
    prefix_of,
    read_body,
    read_config,
    read_fields,
    read_mode,
    read_registration,
    registered_fields,
    subject_of,
    subject_or_all,
    whole_number,
)
from millstream.registry.model import Content, Registered, SchemaType
from millstream.registry.records import Change, content_fields
from millstream.registry.registry import SchemaRegistry
from millstream.registry.state import RegistryState
from millstream.registry.users import LoginDelayed, Users

log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]

_SUBJECT_CHARACTERS_MAX: Final = 1_024
_POSITION_SECONDS_MAX: Final = 5.0
_FORMATS: Final = ("", "resolved", "serialized")


def make_app(
    registry: SchemaRegistry,
    *,
    users: Users | None = None,
    trust: ssl.SSLContext | None = None,
    names: Collection[str] | None = None,
) -> Starlette:
    """`trust` is for passing writes on to a leader that speaks TLS, `names` for `check_browser`."""
    return Starlette(
        routes=_Api(registry, users, trust, names).routes(),
        exception_handlers={HTTPException: answer_http_error, Exception: answer_bug},
    )


class _Api:
    def __init__(
        self,
        registry: SchemaRegistry,
        users: Users | None,
        trust: ssl.SSLContext | None,
        names: Collection[str] | None,
    ) -> None:
        self._registry = registry
        self._state = registry.state
        self._users = users
        self._trust = trust
        self._names = names

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
                check_browser(request, self._names)
                if self._users is not None:
                    header = request.headers.get("authorization", "")
                    address = "" if request.client is None else request.client.host
                    if not await self._users.has(header, address):
                        return answer_unauthorized(request)
                choose_type(request)
                request.state.body = await read_body(request)
                method = "GET" if request.method == "HEAD" else request.method
                return await handlers[method](request)
            except RegistryError as refused:
                return answer_error(request, refused)
            except LoginDelayed as delayed:
                return answer_delayed(request, delayed)

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
        return answer_json(request, {})

    async def _types(self, request: Request) -> Response:
        return answer_json(request, ["JSON", "PROTOBUF", "AVRO"])

    async def _contexts(self, request: Request) -> Response:
        return answer_json(request, ["."])

    async def _schemas(self, request: Request) -> Response:
        prefix = prefix_of(request)
        with_deleted, latest = flag(request, "deleted"), flag(request, "latestOnly")
        found: list[Registered] = []
        for subject in self._state.subjects(prefix=prefix):
            versions = self._all(subject, with_deleted=with_deleted)
            found += versions[-1:] if latest else versions
        return answer_json(request, [registered_fields(one) for one in page(request, found)])

    def _all(self, subject: str, *, with_deleted: bool) -> list[Registered]:
        if with_deleted:
            return self._state.versions(subject)
        return self._state.live_versions(subject)

    def _content(self, request: Request) -> Content:
        schema_id = whole_number(request.path_params["id"])
        content = None if schema_id is None else self._state.content(schema_id)
        if content is None:
            raise errors.RegistryError(40403, f"Schema {request.path_params['id']} not found")
        return content

    async def _schema(self, request: Request) -> Response:
        content = self._content(request)
        fields = content_fields(content)
        fields["schema"] = await self._formatted(request, content)
        if flag(request, "fetchMaxId"):
            fields["maxId"] = self._state.last_id
        return answer_json(request, fields)

    async def _schema_text(self, request: Request) -> Response:
        return answer_text(request, await self._formatted(request, self._content(request)))

    async def _formatted(self, request: Request, content: Content) -> str:
        wanted = request.query_params.get("format", "")
        if wanted not in _FORMATS:
            raise RegistryError(422, f"format {wanted!r} is not one of resolved, serialized")
        if wanted != "serialized" or content.type is not SchemaType.PROTOBUF:
            return content.text
        needed = decisions.dependencies_of(self._state, content)
        # In a thread, because large schemas take a while.
        schema = await asyncio.to_thread(decisions.read_schema, content, needed)
        assert isinstance(schema, ProtobufSchema)
        return schema.serialized()

    def _uses(self, request: Request) -> list[Registered]:
        self._content(request)
        uses = self._state.uses_of(int(request.path_params["id"]))
        wanted = request.query_params.get("subject")
        return [
            one
            for one in uses
            if (flag(request, "deleted") or not one.is_deleted)
            and (wanted is None or one.subject == wanted)
        ]

    async def _subjects_of_id(self, request: Request) -> Response:
        subjects = sorted({one.subject for one in self._uses(request)})
        return answer_json(request, page(request, subjects))

    async def _versions_of_id(self, request: Request) -> Response:
        found = [{"subject": one.subject, "version": one.version} for one in self._uses(request)]
        return answer_json(request, page(request, found))

    # -- subjects ---------------------------------------------------------------------

    async def _subjects(self, request: Request) -> Response:
        with_deleted, only_deleted = flag(request, "deleted"), deleted_only(request)
        found = []
        for subject in self._state.subjects(prefix=prefix_of(request)):
            is_deleted = not self._state.live_versions(subject)
            if is_deleted if only_deleted else (with_deleted or not is_deleted):
                found.append(subject)
        return answer_json(request, page(request, found))

    async def _versions(self, request: Request) -> Response:
        subject = subject_of(request)
        versions = self._all(subject, with_deleted=flag(request, "deleted"))
        if deleted_only(request):
            versions = [one for one in self._state.versions(subject) if one.is_deleted]
        if not versions:
            raise errors.subject_not_found(subject)
        return answer_json(request, page(request, [one.version for one in versions]))

    def _one(self, request: Request) -> Registered:
        version = decisions.parse_version(request.path_params["version"])
        return decisions.get_version(
            self._state, subject_of(request), version, with_deleted=flag(request, "deleted")
        )

    async def _version(self, request: Request) -> Response:
        one = self._one(request)
        fields = registered_fields(one)
        fields["schema"] = await self._formatted(request, one.content)
        return answer_json(request, fields)

    async def _version_text(self, request: Request) -> Response:
        return answer_text(request, await self._formatted(request, self._one(request).content))

    async def _referenced_by(self, request: Request) -> Response:
        one = self._one(request)
        referrers = self._state.referrers(one.subject, one.version)
        return answer_json(request, page(request, sorted({each.id for each in referrers})))

    async def _look_up(self, request: Request) -> Response:
        subject = subject_of(request)
        versions = self._all(subject, with_deleted=flag(request, "deleted"))
        if not versions:
            raise errors.subject_not_found(subject)
        wanted = read_registration(request)
        content, _ = await self._registry.read(
            subject, wanted.content, normalize=flag(request, "normalize")
        )
        found = decisions.find_version(versions, content)
        if found is None:
            raise errors.schema_not_found()
        return answer_json(request, registered_fields(found))

    async def _register(self, request: Request) -> Response:
        subject = subject_of(request)
        if not subject or len(subject) > _SUBJECT_CHARACTERS_MAX or not subject.isprintable():
            raise errors.invalid_subject(
                subject[:100], f"1 to {_SUBJECT_CHARACTERS_MAX} printable characters"
            )
        wanted = read_registration(request)
        content, schema = await self._registry.read(
            subject, wanted.content, normalize=flag(request, "normalize")
        )
        wanted = Registration(content, wanted.id, wanted.version)
        # What is there already needs no leader: serializers register before they send.
        held = self._registry.find(subject, wanted)
        if held is None:
            passed_on = await self._pass_on(request)
            if passed_on is not None:
                return passed_on
            held = await self._registry.register(subject, wanted, schema)
        answer = answer_json(request, {"id": held.id})
        answer.headers[POSITION] = str(self._registry.position)
        return answer

    async def _delete_subject(self, request: Request) -> Response:
        subject = subject_of(request)
        is_permanent = flag(request, "permanent")
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
        return answer_json(request, versions)

    async def _delete_version(self, request: Request) -> Response:
        subject = subject_of(request)
        version = decisions.parse_version(request.path_params["version"])
        is_permanent = flag(request, "permanent")
        decide = decisions.remove_version if is_permanent else decisions.delete_version
        [change] = await self._registry.change(lambda state: decide(state, subject, version))
        return answer_json(request, decisions.version_of(change))

    # -- compatibility ----------------------------------------------------------------

    async def _check_version(self, request: Request) -> Response:
        subject = subject_of(request)
        version = decisions.parse_version(request.path_params["version"])
        decisions.get_version(self._state, subject, version)
        content = read_registration(request).content
        _, schema = await self._registry.read(subject, content, normalize=False)
        messages = await self._registry.check_with_one(subject, schema, version)
        return answer_compatibility(request, messages)

    async def _check_all(self, request: Request) -> Response:
        subject = subject_of(request)
        content = read_registration(request).content
        _, schema = await self._registry.read(subject, content, normalize=False)
        messages = await self._registry.check_with_all(subject, schema)
        return answer_compatibility(request, messages)

    async def _config(self, request: Request) -> Response:
        subject = subject_or_all(request)
        own = self._state.own_config(subject)
        if subject is not None and own is None and not flag(request, "defaultToGlobal"):
            raise errors.no_subject_config(subject)
        fields: dict[str, object] = {"compatibilityLevel": self._state.compatibility(subject)}
        if own is not None and own.normalize is not None:
            fields["normalize"] = own.normalize
        return answer_json(request, fields)

    async def _put_config(self, request: Request) -> Response:
        subject = subject_or_all(request)
        fields = read_fields(request)
        config = read_config(fields)
        await self._registry.change(lambda state: decisions.set_config(state, subject, config))
        answer: dict[str, object] = {}
        if config.compatibility is not None:
            answer["compatibility"] = config.compatibility
        if config.normalize is not None:
            answer["normalize"] = config.normalize
        return answer_json(request, answer)

    async def _delete_config(self, request: Request) -> Response:
        subject = subject_or_all(request)
        before = self._state.compatibility(subject)
        await self._registry.change(lambda state: decisions.delete_config(state, subject))
        return answer_json(request, {"compatibilityLevel": before})

    # -- modes ------------------------------------------------------------------------

    async def _mode(self, request: Request) -> Response:
        subject = subject_or_all(request)
        own = self._state.own_mode(subject)
        if subject is not None and own is None and not flag(request, "defaultToGlobal"):
            raise errors.no_subject_mode(subject)
        return answer_json(request, {"mode": self._state.mode(subject)})

    async def _put_mode(self, request: Request) -> Response:
        subject = subject_or_all(request)
        mode = read_mode(read_fields(request).get("mode"))
        is_forced = flag(request, "force")
        await self._registry.change(
            lambda state: decisions.set_mode(state, subject, mode, is_forced=is_forced)
        )
        return answer_json(request, {"mode": mode})

    async def _delete_mode(self, request: Request) -> Response:
        subject = subject_of(request)
        before = self._state.mode(subject)
        await self._registry.change(lambda state: decisions.delete_mode(state, subject))
        return answer_json(request, {"mode": before})

    # -- about the registry -----------------------------------------------------------

    async def _metadata_id(self, request: Request) -> Response:
        clusters = {
            "kafka-cluster": self._registry.cluster_id,
            "schema-registry-cluster": self._registry.group_id,
        }
        return answer_json(request, {"scope": {"path": [], "clusters": clusters}, "id": ""})

    async def _metadata_version(self, request: Request) -> Response:
        return answer_json(request, {"version": f"millstream-{__version__}", "commitId": ""})
