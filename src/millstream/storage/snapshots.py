"""The `.snapshot` files of one partition, and producer state rebuilt from them and the log.

A lost or damaged snapshot only means a longer replay: an older one and the batches after
it give the same state, and so does the whole log.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from millstream.records.batch import BatchView
from millstream.storage import layout
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.files import FileSystem, read_file, write_file
from millstream.storage.producers import ProducerStates
from millstream.storage.segment import Segment

# How much of the log `batches_before` reads: more if there are few batches in it. Five batches of
# several producers fit, and many small ones take some milliseconds.
_EARLIER_BYTES: Final = (1 << 18, 1 << 21, 1 << 24)
_EARLIER_BATCHES_MIN: Final = 1000


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


def batches_before(offset: int, segments: Sequence[Segment]) -> list[BatchView]:
    """Headers of the last batches of producers below `offset`, in order."""
    found: list[BatchView] = []
    for bytes_max in _EARLIER_BYTES:
        found = list(_last_batches(offset, segments, bytes_max))
        if len(found) >= _EARLIER_BATCHES_MIN:
            break
    return [header for header in found if header.producer_id >= 0 and not header.is_control]


def _last_batches(offset: int, segments: Sequence[Segment], bytes_max: int) -> Iterator[BatchView]:
    starts: list[tuple[Segment, int]] = []
    for segment in reversed(segments):
        if segment.base_offset >= offset or bytes_max <= 0:
            continue
        end = segment.find(offset)
        end_position = segment.size_bytes if end is None else end[0]
        starts.append((segment, _batch_from(segment, end_position - bytes_max)))
        bytes_max -= end_position
    for segment, start in reversed(starts):
        for _, header in segment.headers(start):
            if header.base_offset >= offset:
                break
            yield header


def _batch_from(segment: Segment, position: int) -> int:
    """Where a batch begins, at `position` or a little later."""
    entry = segment.index.first_from(position) if position > 0 else None
    found = None if entry is None else segment.find(entry[0])
    if found is not None:
        return found[0]
    return 0 if position <= 0 else segment.size_bytes


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
