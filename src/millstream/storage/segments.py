"""The segments of one log, in order: the last one grows, the others stay or are removed.

Owns what happens to whole segments: a new one begins, old ones are renamed and later
deleted, a cut removes the newest. The offsets of a log belong to the log itself.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import overload

from millstream.errors import LogDirFailed, NoSpace
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.files import DescriptorCache, LogFile
from millstream.storage.segment import Segment
from millstream.storage.segment_files import DeletedFiles, create_segment, mark_deleted
from millstream.storage.snapshots import Snapshots
from millstream.storage.syncing import Unsynced
from millstream.storage.values import LogConfig, storage_failure


class Segments(Sequence[Segment]):
    """Never empty. Base offsets grow, and every offset of the log is in the last segment that
    begins at or before it."""

    __slots__ = (
        "_cache",
        "_deleted",
        "_directory",
        "_snapshots",
        "_unsynced",
        "active",
        "all",
        "cleaned_offset",
    )

    def __init__(
        self,
        directory: str,
        segments: list[Segment],
        *,
        cache: DescriptorCache,
        snapshots: Snapshots,
        unsynced: Unsynced,
    ) -> None:
        self.all = segments
        # The last segment, and the only one that grows: `active is segments[-1]`.
        self.active = segments[-1]
        # Where the last round of compaction ended; None if there was none. A cut lowers it: what
        # comes after the cut was in no round.
        self.cleaned_offset: int | None = None
        self._directory = directory
        self._cache = cache
        self._snapshots = snapshots
        self._unsynced = unsynced
        self._deleted = DeletedFiles()

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.all)

    @overload
    def __getitem__(self, number: int) -> Segment: ...
    @overload
    def __getitem__(self, number: slice) -> list[Segment]: ...
    def __getitem__(self, number: int | slice) -> Segment | list[Segment]:
        return self.all[number]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.all)

    def number_of(self, offset: int) -> int:
        """The segment that holds `offset`: the last that begins at or before it, or the first."""
        if offset >= self.active.base_offset:
            return len(self.all) - 1
        number = bisect_right(self.all, offset, key=lambda segment: segment.base_offset) - 1
        return max(number, 0)

    def base_offsets(self) -> set[int]:
        return {segment.base_offset for segment in self.all}

    # Growing

    def begin(self, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
        """A new, empty segment after all others. Raises OSError."""
        new = create_segment(self._cache, self._directory, base_offset, config, now_ms=now_ms)
        old = self.active
        if old.size_bytes == 0 and old.base_offset != base_offset:
            # An empty one that does not fit the next offsets would shadow the new one.
            self.remove([old], config, now_ms)
        else:
            _finish(old)
        self._add(new)
        return new

    def _add(self, new: Segment) -> None:
        self.all.append(new)
        self.active = new
        self._unsynced.files[new.file] = None
        self._unsynced.directories[self._directory] = None

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Write the entry with the marker: nothing would show later that it is missing."""
        index = self.active.aborted
        index.append(aborted)
        try:
            index.entries.flush()
        except OSError:
            # A full disk: the entry stays in memory, and is written with the next one.
            return
        self._unsynced.paths[index.entries.file.path] = None
        self._unsynced.directories[self._directory] = None

    # Removing

    def remove(self, removed: Sequence[Segment], config: LogConfig, now_ms: int) -> None:
        """Rename the files now; they are deleted after `file.delete.delay.ms`."""
        for segment in removed:
            self.all.remove(segment)
            self._unsynced.files.pop(segment.file, None)
            self._snapshots.remove_at(segment.base_offset)
            try:
                marked = mark_deleted(segment)
            except OSError as error:
                raise storage_failure(error, self._directory) from error
            self._deleted.add(marked, due_ms=now_ms + config.file_delete_delay_ms)

    def replace(self, old: Sequence[Segment], new: Segment, config: LogConfig, now_ms: int) -> None:
        at = self.all.index(old[0])
        self.remove(old, config, now_ms)
        self.all.insert(at, new)
        self._unsynced.directories[self._directory] = None

    def cut_at(self, offset: int, config: LogConfig) -> int:
        """Drop everything from `offset` on, with the batch that contains it; return the log end."""
        number = self.number_of(offset)
        segment = self.all[number]
        # All is read before anything is removed: a disk error leaves the log as it was.
        found = segment.find(offset)
        if found is not None:
            position, _ = found
            base_offset = next(segment.headers(position))[1].base_offset
            offset = min(offset, base_offset)
            segment.prepare_truncation(position, offset)
        self._unsynced.truncations += 1
        with self._all_or_failed():
            # The newest first: a restart in the middle of it finds no hole.
            self.remove(self.all[:number:-1], config, 0)
            self.active = segment
            if found is not None:
                segment.truncate(position, offset)
        self._unsynced.files[segment.file] = None
        self._lower_cleaned_to(offset)
        return offset

    def start_again_at(self, offset: int, config: LogConfig) -> None:
        """Drop everything; one empty segment is left."""
        self._unsynced.truncations += 1
        with self._all_or_failed():
            self.remove(list(self.all), config, 0)
            self._add(create_segment(self._cache, self._directory, offset, config, now_ms=0))
            self._snapshots.remove_all()
        self._lower_cleaned_to(offset)

    def _lower_cleaned_to(self, offset: int) -> None:
        if self.cleaned_offset is not None:
            self.cleaned_offset = min(self.cleaned_offset, offset)

    @contextmanager
    def _all_or_failed(self) -> Iterator[None]:
        """Between these steps the log does not end where it says. So an error ends the use of it,
        even one of those after which other writes are tried again."""
        try:
            yield
        except (OSError, NoSpace) as error:
            raise LogDirFailed(f"{self._directory}: it is cut in part: {error}") from error

    def schedule_removal(self, file: LogFile) -> None:
        """A file that belongs to no segment is deleted by the next sweep."""
        self._deleted.add([file], due_ms=0)

    def sweep(self, now_ms: int) -> None:
        """Delete the files that were renamed long enough ago."""
        self._deleted.sweep(now_ms)

    # Durability

    def mark_unsynced_from(self, offset: int) -> None:
        """After a crash: everything from `offset` on may be in the page cache only.

        The files may be closed all the same, or a start could not open more partitions than the
        process has descriptors: an error in writing back what an earlier process wrote is reported
        to the descriptor of the lock, which is older than all of recovery. See `recovery_sync`.
        """
        self._unsynced.synced_offset = min(offset, self._unsynced.synced_offset)
        for segment in self.all[self.number_of(offset) :]:
            segment.file.is_dirty = False
            self._unsynced.files[segment.file] = None
            if segment.aborted.entries.count:
                self._unsynced.paths[segment.aborted.entries.file.path] = None
        self._unsynced.directories[self._directory] = None

    def sync_closed_by_name(self) -> None:
        """Have the next sync open what is not open: a sync of thousands of recovered logs would
        need more descriptors than there are."""
        for file in [file for file in self._unsynced.files if file.descriptor < 0]:
            del self._unsynced.files[file]
            self._unsynced.paths[file.path] = None

    def close(self) -> None:
        for segment in self.all:
            segment.close()
        self._deleted.close()


def _finish(segment: Segment) -> None:
    segment.forget_recent()
    try:
        segment.finish()
    except OSError:
        # The index entries stay in memory, and the next start rebuilds what is missing.
        return
