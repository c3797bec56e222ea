"""One-shot watches, shared by the stores that live in this process."""

from collections.abc import Callable, Iterable

from millstream.cluster.coordination import Check, Create, Delete, Operation, parent_of


class Watches:
    __slots__ = ("_callbacks",)

    def __init__(self) -> None:
        self._callbacks: dict[str, list[Callable[[], None]]] = {}

    def add(self, path: str, callback: Callable[[], None]) -> None:
        self._callbacks.setdefault(path, []).append(callback)

    def fire(self, paths: Iterable[str]) -> None:
        for path in paths:
            for callback in self._callbacks.pop(path, ()):
                callback()


def touched_paths(operations: Iterable[Operation]) -> list[str]:
    """Where a watch must fire after these, each path once, in order."""
    touched: dict[str, None] = {}
    for operation in operations:
        if isinstance(operation, Check):
            continue
        touched[operation.path] = None
        if isinstance(operation, Create | Delete):
            touched[parent_of(operation.path)] = None
    return list(touched)
