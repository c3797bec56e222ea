"""The ACLs of the cluster, as the coordination store has them."""

from collections.abc import Callable, Collection, Iterable, Mapping

from millstream.security.acl import Binding, BindingFilter, Entry, ResourcePattern
from millstream.security.authorization import AclIndex

# All entries of a pattern; none of them removes it.
AclChanges = Mapping[ResourcePattern, frozenset[Entry]]


class StoredAcls:
    """`listeners` are called on the loop, after every change."""

    __slots__ = ("_entries", "index", "listeners")

    def __init__(self) -> None:
        # The same ACLs as in the index. No pattern is without entries.
        self._entries: dict[ResourcePattern, frozenset[Entry]] = {}
        self.index = AclIndex()
        self.listeners: list[Callable[[], None]] = []

    @property
    def entries(self) -> AclChanges:
        return self._entries

    def entries_of(self, pattern: ResourcePattern) -> frozenset[Entry]:
        return self._entries.get(pattern, frozenset())

    def apply(self, changes: AclChanges) -> None:
        changed = {
            pattern: entries
            for pattern, entries in changes.items()
            if entries != self.entries_of(pattern)
        }
        for pattern, entries in changed.items():
            self.index.replace(pattern, entries)
            if entries:
                self._entries[pattern] = entries
            else:
                del self._entries[pattern]
        if changed:
            for listener in tuple(self.listeners):
                listener()

    def replace_all(self, everything: AclChanges) -> None:
        gone = dict.fromkeys(self._entries.keys() - everything.keys(), frozenset[Entry]())
        self.apply({**gone, **everything})


def added(acls: StoredAcls, bindings: Iterable[Binding]) -> AclChanges:
    """What changes if these bindings are added."""
    changed: dict[ResourcePattern, set[Entry]] = {}
    for one in bindings:
        present = changed.setdefault(one.pattern, set(acls.entries_of(one.pattern)))
        present.add(one.entry)
    return _different(acls, changed)


def removed(acls: StoredAcls, bindings: Iterable[Binding]) -> AclChanges:
    changed: dict[ResourcePattern, set[Entry]] = {}
    for one in bindings:
        present = changed.setdefault(one.pattern, set(acls.entries_of(one.pattern)))
        present.discard(one.entry)
    return _different(acls, changed)


def selected(acls: StoredAcls, filters: Collection[BindingFilter]) -> list[list[Binding]]:
    """The bindings that each filter selects."""
    return [acls.index.find(wanted) for wanted in filters]


def _different(acls: StoredAcls, changed: Mapping[ResourcePattern, set[Entry]]) -> AclChanges:
    return {
        pattern: frozenset(entries)
        for pattern, entries in changed.items()
        if entries != acls.entries_of(pattern)
    }
