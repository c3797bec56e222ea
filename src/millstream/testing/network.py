"""A network between brokers that a test can cut.

Requests of a node that is not reached end with their connection; clients reach everyone.
"""

from collections.abc import Collection, Iterable, Mapping, Set

from millstream.broker.network.connection import Connection
from millstream.broker.network.replies import Pending, Pieces
from millstream.broker.network.server import Dispatch
from millstream.errors import ProtocolError


def sides_of(sides: Iterable[Collection[int]], everyone: Collection[int]) -> list[set[int]]:
    """The sides, with one more for the nodes that are on none. Raises ValueError."""
    found = [set(side) for side in sides]
    named = [node_id for side in found for node_id in side]
    if len(named) != len(set(named)) or not set(named) <= set(everyone):
        shown = " | ".join(", ".join(map(str, sorted(side))) for side in found)
        raise ValueError(f"each broker of {sorted(everyone)} is on one side at most: {shown}")
    rest = set(everyone) - set(named)
    return found + ([rest] if rest else [])


def unreached(sides: Iterable[Set[int]]) -> dict[int, set[int]]:
    """By node, those on other sides."""
    known = [set(side) for side in sides]
    everyone = set[int]().union(*known)
    return {node_id: everyone - side for side in known for node_id in side}


def largest(sides: Iterable[Set[int]]) -> set[int]:
    """The first of the largest sides: the coordination store is there."""
    known = [set(side) for side in sides]
    return max(known, key=len)


class CutNetwork:
    def __init__(self) -> None:
        self._unreached: Mapping[int, Set[int]] = {}

    def cut(self, unreached: Mapping[int, Set[int]]) -> None:
        """By node, those that it does not reach from now on; nothing for a whole network."""
        self._unreached = unreached

    def guarded(self, node_id: int, dispatch: Dispatch) -> Dispatch:
        """What a node answers, without the nodes that it does not reach."""

        def guarded(connection: Connection, frame: memoryview) -> Pieces | Pending:
            if self._is_cut(node_id, connection):
                raise ProtocolError("the test has cut the network")
            return dispatch(connection, frame)

        return guarded

    def break_off(self, node_id: int, connections: Iterable[Connection]) -> None:
        """Close what is open between nodes that do not reach each other any more."""
        for connection in list(connections):
            if self._is_cut(node_id, connection):
                connection.close()

    def _is_cut(self, node_id: int, connection: Connection) -> bool:
        return connection.proved_node_id in self._unreached.get(node_id, ())
