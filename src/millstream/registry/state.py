"""All subjects, versions, ids, configs and modes, made from the records of the topic.

Every instance applies the same records in the same order and so has the same state. Invariants:
`_contents` has an id exactly as long as some version, soft-deleted or not, has it; `last_id` never
goes down.

Knows no topic, no request and no format of schemas.
"""

from collections.abc import Iterable
from typing import TypeVar

from millstream.registry.model import (
    DEFAULT_COMPATIBILITY,
    Compatibility,
    Config,
    Content,
    Mode,
    Reference,
    Registered,
)
from millstream.registry.records import (
    Change,
    ConfigSet,
    ModeSet,
    SchemaRemoved,
    SchemaWritten,
    SubjectCleared,
    SubjectDeleted,
)

T = TypeVar("T")


class RegistryState:
    def __init__(self) -> None:
        # Soft-deleted versions are in here.
        self._versions: dict[str, dict[int, Registered]] = {}
        self._contents: dict[int, Content] = {}
        self._ids: dict[Content, int] = {}
        # Where an id is used, as subject and version.
        self._places: dict[int, set[tuple[str, int]]] = {}
        self._referrers: dict[tuple[str, int], set[tuple[str, int]]] = {}
        self._configs: dict[str | None, Config] = {}
        self._modes: dict[str | None, Mode] = {}
        self.last_id = 0

    # -- changes ----------------------------------------------------------------------

    def apply(self, change: Change) -> None:
        match change:
            case SchemaWritten(registered):
                self._put(registered)
            case SchemaRemoved(subject, version):
                self._remove(subject, version)
            case SubjectDeleted(subject, last):
                for one in self.versions(subject):
                    if one.version <= last:
                        self._put(_deleted(one))
            case SubjectCleared(subject):
                for one in self.versions(subject):
                    if one.is_deleted:
                        self._remove(subject, one.version)
            case ConfigSet(subject, config):
                _set(self._configs, subject, config)
            case ModeSet(subject, mode):
                _set(self._modes, subject, mode)

    def _put(self, registered: Registered) -> None:
        subject, version = registered.subject, registered.version
        self._remove(subject, version)
        self._versions.setdefault(subject, {})[version] = registered
        self._contents[registered.id] = registered.content
        self._ids.setdefault(registered.content, registered.id)
        self._places.setdefault(registered.id, set()).add((subject, version))
        for one in registered.content.references:
            self._referrers.setdefault((one.subject, one.version), set()).add((subject, version))
        self.last_id = max(self.last_id, registered.id)

    def _remove(self, subject: str, version: int) -> None:
        removed = self._versions.get(subject, {}).pop(version, None)
        if removed is None:
            return
        if not self._versions[subject]:
            del self._versions[subject]
        for one in removed.content.references:
            self._referrers[one.subject, one.version].discard((subject, version))
        places = self._places[removed.id]
        places.discard((subject, version))
        if not places:
            del self._places[removed.id], self._contents[removed.id]
            if self._ids.get(removed.content) == removed.id:
                del self._ids[removed.content]

    # -- schemas ----------------------------------------------------------------------

    def subjects(self, *, prefix: str = "") -> list[str]:
        """Also those whose versions are all soft-deleted."""
        return sorted(subject for subject in self._versions if subject.startswith(prefix))

    def versions(self, subject: str) -> list[Registered]:
        """All of them in order; none if there is no such subject."""
        return [one for _, one in sorted(self._versions.get(subject, {}).items())]

    def live_versions(self, subject: str) -> list[Registered]:
        """Those that are not soft-deleted."""
        return [one for one in self.versions(subject) if not one.is_deleted]

    def version(self, subject: str, version: int) -> Registered | None:
        return self._versions.get(subject, {}).get(version)

    def content(self, schema_id: int) -> Content | None:
        return self._contents.get(schema_id)

    def id_of(self, content: Content) -> int | None:
        return self._ids.get(content)

    def uses_of(self, schema_id: int) -> list[Registered]:
        return self._registered(self._places.get(schema_id, ()))

    def referrers(self, subject: str, version: int) -> list[Registered]:
        """Versions that are not deleted and refer to this one."""
        found = self._registered(self._referrers.get((subject, version), ()))
        return [one for one in found if not one.is_deleted]

    def _registered(self, places: Iterable[tuple[str, int]]) -> list[Registered]:
        return [self._versions[subject][version] for subject, version in sorted(places)]

    def resolve(self, reference: Reference) -> Registered | None:
        """The version that a reference names: -1 is the latest. A soft-deleted one still counts:
        what refers to it must stay readable."""
        if reference.version != -1:
            return self.version(reference.subject, reference.version)
        live = self.live_versions(reference.subject)
        return live[-1] if live else None

    # -- configs and modes ------------------------------------------------------------

    def own_config(self, subject: str | None) -> Config | None:
        return self._configs.get(subject)

    def compatibility(self, subject: str | None) -> Compatibility:
        """The level in force: of the subject, else of all, else the default."""
        for config in (self._configs.get(subject), self._configs.get(None)):
            if config is not None and config.compatibility is not None:
                return config.compatibility
        return DEFAULT_COMPATIBILITY

    def normalizes(self, subject: str) -> bool:
        for config in (self._configs.get(subject), self._configs.get(None)):
            if config is not None and config.normalize is not None:
                return config.normalize
        return False

    def own_mode(self, subject: str | None) -> Mode | None:
        return self._modes.get(subject)

    def mode(self, subject: str | None) -> Mode:
        """The mode in force."""
        everywhere = self._modes.get(None, Mode.READWRITE)
        if everywhere is Mode.READONLY_OVERRIDE:
            return everywhere
        return self._modes.get(subject, everywhere)


def _set(values: dict[str | None, T], subject: str | None, value: T | None) -> None:
    if value is None:
        values.pop(subject, None)
    else:
        values[subject] = value


def _deleted(one: Registered) -> Registered:
    return Registered(one.subject, one.version, one.id, one.content, is_deleted=True)
