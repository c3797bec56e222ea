"""One-shot watches, shared by the stores that live in this process."""

from collections.abc import Callable, Iterable

from millstream.cluster.stores.store import Check, Create, Delete, Operation, parent_of


class Watches:
    """Watches on nodes and on sets of children are separate, as in ZooKeeper."""

    __slots__ = ("_of_children", "_of_nodes")

    def __init__(self) -> None:
        self._of_nodes: dict[str, list[Callable[[], None]]] = {}
        self._of_children: dict[str, list[Callable[[], None]]] = {}

    def add(self, path: str, callback: Callable[[], None] | None) -> None:
        if callback is not None:
            self._of_nodes.setdefault(path, []).append(callback)

    def add_for_children(self, path: str, callback: Callable[[], None] | None) -> None:
        if callback is not None:
            self._of_children.setdefault(path, []).append(callback)

    def fire(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, Check):
                continue
            self._call(self._of_nodes, operation.path)
            if isinstance(operation, Create | Delete):
                self._call(self._of_children, parent_of(operation.path))
            if isinstance(operation, Delete):
                self._call(self._of_children, operation.path)

    def _call(self, watches: dict[str, list[Callable[[], None]]], path: str) -> None:
        for callback in watches.pop(path, ()):
            callback()
