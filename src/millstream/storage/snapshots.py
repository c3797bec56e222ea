"""The `.snapshot` files of one partition, and producer state rebuilt from them and the log.

A lost or damaged snapshot only means a longer replay: an older one and the batches after
it give the same state, and so does the whole log.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence

from millstream.storage import layout
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.files import FileSystem, read_file, write_file
from millstream.storage.producers import ProducerStates
from millstream.storage.segment import Segment


class Snapshots:
    def __init__(self, file_system: FileSystem, directory: str, offsets: Iterable[int]) -> None:
        self._file_system = file_system
        self._directory = directory
        self._offsets = sorted(offsets)

    @property
    def offsets(self) -> list[int]:
        return list(self._offsets)

    def _path(self, offset: int) -> str:
        name = layout.offset_file_name(offset, layout.SNAPSHOT_SUFFIX)
        return f"{self._directory}/{name}"

    def load(
        self, segments: Sequence[Segment], next_offset: int, *, quiet_from: int | None = None
    ) -> ProducerStates:
        """The state at `next_offset`. No batch from `quiet_from` on is a known producer's."""
        replay_to = next_offset if quiet_from is None else min(quiet_from, next_offset)
        self.remove_after(next_offset)
        while self._offsets:
            offset = self._offsets[-1]
            data = read_file(self._file_system, self._path(offset))
            try:
                states = ProducerStates.decode(data or b"", next_offset=offset)
            except ValueError:
                self.remove_at(offset)
                continue
            break
        else:
            states = ProducerStates()
            states.next_offset = segments[0].base_offset
        _replay(states, segments, replay_to)
        states.next_offset = next_offset
        return states

    def take(self, states: ProducerStates, *, keep: Collection[int]) -> None:
        """Write a snapshot of `states`; drop those that are neither the newest nor in `keep`."""
        offset = states.next_offset
        if offset not in self._offsets:
            write_file(self._file_system, self._path(offset), states.encode(), is_synced=False)
            self._offsets.append(offset)
            self._offsets.sort()
        for old in [known for known in self._offsets if known not in keep and known != offset]:
            self.remove_at(old)

    def remove_at(self, offset: int) -> None:
        if offset not in self._offsets:
            return
        self._offsets.remove(offset)
        try:
            self._file_system.remove(self._path(offset))
        except FileNotFoundError:
            return

    def remove_after(self, next_offset: int) -> None:
        for offset in self._offsets[bisect_right(self._offsets, next_offset) :]:
            self.remove_at(offset)

    def remove_all(self) -> None:
        for offset in self.offsets:
            self.remove_at(offset)


def _replay(states: ProducerStates, segments: Sequence[Segment], upto_offset: int) -> None:
    """Add the batches from `states.next_offset` to `upto_offset`."""
    start_offset = states.next_offset
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        end_offset = upto_offset if is_last else segments[number + 1].base_offset
        if end_offset <= start_offset or segment.base_offset >= upto_offset:
            continue
        replay_segment(states, segment, start_offset)


def replay_segment(
    states: ProducerStates, segment: Segment, start_offset: int
) -> list[AbortedTransaction]:
    """Add one segment's batches from `start_offset` on; return its aborted transactions."""
    aborted: list[AbortedTransaction] = []
    found = segment.find(start_offset)
    if found is None:
        return aborted
    for position, header in segment.headers(found[0]):
        if header.producer_id < 0 or header.base_offset < start_offset:
            continue
        if header.is_control:
            header = segment.read_batch(position, header.size_bytes)
        ended = states.update(header)
        if ended is not None:
            aborted.append(ended)
    return aborted
