"""Asks a schema registry, ours or another one, from a command."""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from millstream.registry.formats.text import Dependency
from millstream.registry.model import Content, Reference, SchemaType
from millstream.registry.records import read_references

_SECONDS_MAX: Final = 20.0
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"


class RegistryRefused(Exception):
    """The registry answered with an error, which `code` tells, or did not answer (0)."""

    _NO_SCHEMA: Final = (40401, 40402, 40403)

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code

    @property
    def is_about_schema(self) -> bool:
        """Does the registry work, but not know what it was asked for?"""
        return self.code in self._NO_SCHEMA


class RegistryClient:
    """A URL may have a login: https://name:password@host:8081."""

    def __init__(self, url: str, *, seconds_max: float = _SECONDS_MAX) -> None:
        """An answer may take `seconds_max`. Raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{_without_login(url)} is not http://HOST:PORT or https://HOST:PORT")
        self.url = _without_login(url).rstrip("/")
        self._seconds_max = seconds_max
        self._headers = {"Content-Type": _CONTENT_TYPE, "Accept": _CONTENT_TYPE}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            encoded = base64.b64encode(login.encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded}"

    def content(self, schema_id: int) -> Content:
        """Raises RegistryRefused."""
        return _content(self._ask("GET", f"/schemas/ids/{schema_id}"))

    def latest_id(self, subject: str) -> int:
        """Raises RegistryRefused."""
        found = self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions/latest")
        return int(found["id"])

    def register(self, subject: str, schema_type: SchemaType, text: str) -> int:
        """Raises RegistryRefused."""
        body = {"schema": text, "schemaType": schema_type}
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return int(self._ask("POST", path, body)["id"])

    def dependencies(self, content: Content) -> list[Dependency]:
        """Each stands behind those that it needs. Raises RegistryRefused."""
        found: dict[str, Dependency] = {}
        asked: set[str] = set()

        def add(references: Sequence[Reference]) -> None:
            for one in references:
                if one.name in asked:
                    continue
                asked.add(one.name)
                subject = quote(one.subject, safe="")
                path = f"/subjects/{subject}/versions/{one.version}?deleted=true"
                target = _content(self._ask("GET", path))
                add(target.references)
                found[one.name] = Dependency(one.name, target.text)

        add(content.references)
        return list(found.values())

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self._headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=self._seconds_max) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                raise _refusal(refused.code, refused.read()) from None
        except (OSError, ValueError) as failed:
            reason = getattr(failed, "reason", failed)
            raise RegistryRefused(0, f"the schema registry at {self.url}: {reason}") from None


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _content(fields: Any) -> Content:
    try:
        return Content(
            SchemaType(fields.get("schemaType") or SchemaType.AVRO),
            fields["schema"],
            read_references(fields.get("references") or []),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise RegistryRefused(0, "the schema registry answered with something else") from None


def _refusal(status: int, data: bytes) -> RegistryRefused:
    try:
        fields = json.loads(data)
        return RegistryRefused(int(fields["error_code"]), str(fields["message"]))
    except (ValueError, KeyError, TypeError):
        return RegistryRefused(status, f"the schema registry answered with HTTP {status}")
