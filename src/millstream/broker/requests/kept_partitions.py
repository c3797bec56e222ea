"""The partitions of topics as Metadata last showed them, until something about them changes.

When a node dies, its clients look for their leaders ten times a second, each for all partitions of
its topics, while the other nodes have to take over. Nothing here is invalidated: what the
partitions were shown from is kept with them, and compared.
"""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from millstream.cluster.state import PartitionState, TopicState
from millstream.lazy_dataclass import dataclass
from millstream.wire.message import KeptArray

if TYPE_CHECKING:
    # Imported with the first request.
    from millstream.wire.apis.metadata import MetadataPartition

# Of all topics together. Each takes about 600 bytes.
PARTITIONS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class _Kept:
    nodes: Hashable
    # States are replaced, never changed: comparing them is comparing pointers.
    states: list[PartitionState]
    shown: "KeptArray[MetadataPartition]"


class KeptPartitions:
    def __init__(self, partitions_max: int = PARTITIONS_MAX) -> None:
        self._partitions_max = partitions_max
        self._kept: dict[str, _Kept] = {}
        self._count = 0

    def of(
        self,
        topic: TopicState,
        nodes: Hashable,
        show: "Callable[[], list[MetadataPartition]]",
    ) -> "list[MetadataPartition]":
        """`show` depends only on the states of the topic's partitions and on `nodes`."""
        kept = self._kept.get(topic.name)
        if kept is None or kept.nodes != nodes or kept.states != topic.partitions:
            kept = _Kept(nodes, list(topic.partitions), KeptArray(show()))
            self._keep(topic.name, kept)
        return kept.shown

    def _keep(self, name: str, kept: _Kept) -> None:
        former = self._kept.pop(name, None)
        self._count += len(kept.states) - (0 if former is None else len(former.states))
        if self._count > self._partitions_max:
            self._kept.clear()
            self._count = len(kept.states)
        self._kept[name] = kept
