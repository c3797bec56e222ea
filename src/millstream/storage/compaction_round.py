"""One round of compaction over the files of a partition: segments in, `.cleaned` files out.

A round is described by plain values and touches no `Log`, so that it can run in a thread
or in another process while the log is in use. It reads segments that no longer change, and
writes new ones under names that a start ignores. A segment is on the disk when it is yielded;
`segment_swap` gives it its real name.
"""

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any, Final

from millstream.lazy_dataclass import dataclass
from millstream.records.batch import HEADER_BYTES, MAGIC, BatchView
from millstream.records.columns import (
    IMPLEMENTATION,
    Implementation,
    KeyMap,
    Rewriter,
    Stop,
    is_readable,
    unpacked_records,
)
from millstream.records.rewriting import emptied, rebuilt
from millstream.storage import aborted_index, layout
from millstream.storage.aborted_index import AbortedTransaction
from millstream.storage.cleaned_files import CleanedIndexes, NewFile
from millstream.storage.compaction import Span, Transactions, group_segments, is_horizon_past
from millstream.storage.files import FileSystem

BUFFER_BYTES_MIN: Final = 64 * 1024


class CannotCompact(Exception):
    """The partition's files are damaged. Nothing was changed."""


class _Unreadable(Exception):
    """A batch is intact, but its records do not add up: an earlier version accepted it. It is kept
    as it is, and its keys do not count."""


@dataclass(frozen=True, slots=True)
class Round:
    """Everything that a round needs to know."""

    directory: str
    # From the log's first segment to the last that may be touched.
    spans: tuple[Span, ...]
    first_dirty_offset: int
    aborted: tuple[AbortedTransaction, ...]
    # Batches that keep their header for the producer's sequence: their last offsets.
    kept_offsets: tuple[int, ...]
    # Producers that have written nothing since their last marker: id and epoch.
    kept_markers: tuple[tuple[int, int], ...]
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    # Memory for keys, and how full it may get.
    keys_bytes: int
    load_factor: float
    buffer_bytes: int

    def to_plain(self) -> dict[str, Any]:
        # Not `asdict` of it all, which copies each of twenty thousand producers: this is on the
        # event loop.
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        plain["spans"] = [asdict(each) for each in self.spans]
        plain["aborted"] = [asdict(each) for each in self.aborted]
        return plain

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "Round":
        spans = tuple(Span(**each) for each in plain.pop("spans"))
        aborted = tuple(AbortedTransaction(**each) for each in plain.pop("aborted"))
        markers = tuple((each[0], each[1]) for each in plain.pop("kept_markers"))
        offsets = tuple(plain.pop("kept_offsets"))
        return cls(
            spans=spans, aborted=aborted, kept_markers=markers, kept_offsets=offsets, **plain
        )


@dataclass(frozen=True, slots=True)
class CleanedSegment:
    """A finished `.cleaned` segment, and the segments that it replaces."""

    base_offset: int
    replaced_offsets: tuple[int, ...]
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    index_bytes: int
    time_index_bytes: int
    # -1 if there is no such file.
    aborted_index_bytes: int
    # Batches that are intact but cannot be read; they are kept as they are.
    unreadable_batches: int
    # For the whole round: keys in the dirty part, and the offset up to which the log is then clean.
    keys: int
    end_offset: int

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "CleanedSegment":
        return cls(**{**plain, "replaced_offsets": tuple(plain["replaced_offsets"])})


def compact_segments(
    what: Round,
    file_system: FileSystem,
    *,
    moved: Callable[[int], None],
    implementation: Implementation = IMPLEMENTATION,
) -> Generator[CleanedSegment, None, None]:
    """The new segments, one after the other. Raises CannotCompact and OSError.

    `moved` is called often, with the bytes read or written since the last call; it may wait,
    or raise to end the round. Each segment must be in place before the next is requested: what
    is removed from a later one may depend on what was removed from an earlier one.
    """
    work = _Work(what, file_system, moved, implementation)
    end_offset = work.read_keys()
    spans = [span for span in what.spans if span.base_offset < end_offset]
    groups = group_segments(
        spans, segment_bytes=what.segment_bytes, segment_index_bytes=what.segment_index_bytes
    )
    transactions = Transactions(what.aborted, from_offset=what.spans[0].base_offset)
    for group in groups:
        yield work.write_segment(group, transactions, end_offset)


class _Work:
    def __init__(
        self,
        what: Round,
        file_system: FileSystem,
        moved: Callable[[int], None],
        implementation: Implementation,
    ) -> None:
        self._what = what
        self._file_system = file_system
        self._moved = moved
        self._implementation = implementation
        self._keys = self._new_keys()
        # Where unreadable batches begin in the dirty part: positions in each file, in order, by
        # the segment's base offset. Empty until one is met while keys are read; then all of them.
        self._unreadable: dict[int, list[int]] = {}

    def _new_keys(self) -> KeyMap:
        # Never more than there are offsets: a small log needs little memory.
        what = self._what
        dirty = what.spans[-1].next_offset - what.first_dirty_offset
        room = int(what.keys_bytes / self._implementation.ENTRY_BYTES * what.load_factor)
        return self._implementation.KeyMap(max(1, min(room, dirty)), what.load_factor)

    def _path(self, base_offset: int, suffix: str) -> str:
        return f"{self._what.directory}/{layout.offset_file_name(base_offset, suffix)}"

    def _chunks(self, span: Span) -> Iterator["_Chunk"]:
        """The segment's bytes, in chunks that start with a batch."""
        path = self._path(span.base_offset, layout.LOG_SUFFIX)
        descriptor = self._file_system.open(path, create=False)
        try:
            length = max(self._what.buffer_bytes, BUFFER_BYTES_MIN)
            position = 0
            while position < span.size_bytes:
                wanted = min(length, span.size_bytes - position)
                data = self._file_system.read_at(descriptor, wanted, position)
                is_end = position + len(data) == span.size_bytes
                chunk = _Chunk(path, position, data, is_end)
                yield chunk
                if chunk.done == 0:
                    length = chunk.first_batch_bytes(span.size_bytes)
                self._moved(chunk.done)
                position += chunk.done
        finally:
            self._file_system.close(descriptor)

    # Reading keys

    def read_keys(self) -> int:
        """Fill the map from the dirty part; return the offset it reached."""
        try:
            return self._read_all_keys()
        except _Unreadable:
            # Some of its keys may be in the map already.
            self._unreadable = self._find_unreadable()
            self._keys = self._new_keys()
            return self._read_all_keys()

    def _find_unreadable(self) -> dict[int, list[int]]:
        """Raises CannotCompact where a batch is damaged."""
        found: dict[int, list[int]] = {}
        for span in self._what.spans:
            if span.next_offset <= self._what.first_dirty_offset:
                continue
            positions = found[span.base_offset] = []
            for chunk in self._chunks(span):
                while chunk.whole_batch() is not None:
                    batch = chunk.intact_batch()
                    if not is_readable(batch, implementation=self._implementation):
                        positions.append(chunk.position)
                    chunk.done += batch.size_bytes
        return found

    def _read_all_keys(self) -> int:
        start = self._what.first_dirty_offset
        transactions = Transactions(self._what.aborted, from_offset=start)
        end_offset = start
        for span in self._what.spans:
            if span.next_offset <= start:
                continue
            if not self._read_keys_of(span, transactions):
                # Possibly inside a batch; the rest of it is left for the next round.
                return self._keys.latest_offset + 1
            end_offset = span.next_offset
            self._keys.latest_offset = end_offset - 1
        return end_offset

    def _read_keys_of(self, span: Span, transactions: Transactions) -> bool:
        """False if the map is full."""
        start = self._what.first_dirty_offset
        unreadable_positions = self._unreadable.get(span.base_offset, [])
        for chunk in self._chunks(span):
            while True:
                readable = chunk.data_before(unreadable_positions)
                chunk.done, stop = self._keys.add_batches(readable, chunk.done, start)
                if stop == Stop.SPECIAL:
                    batch = chunk.next_batch()
                    if batch.last_offset >= start:
                        stop = self._add_special(batch, transactions, chunk)
                if stop == Stop.FULL:
                    return False
                if stop == Stop.DAMAGED:
                    raise _Unreadable(chunk.intact_batch().base_offset)
                if stop == Stop.END:
                    unreadable = chunk.whole_batch() if len(readable) < len(chunk.data) else None
                    if unreadable is None:
                        break
                    batch = unreadable
                    self._keys.latest_offset = batch.last_offset
                chunk.done += batch.size_bytes
        return True

    def _add_special(self, batch: BatchView, transactions: Transactions, chunk: "_Chunk") -> Stop:
        """SPECIAL if the batch is in, so that the caller continues after it."""
        keys = self._keys
        if batch.is_control:
            with chunk.errors():
                transactions.is_marker_needless(batch)
        elif not transactions.is_aborted(batch):
            try:
                records = unpacked_records(batch)
            except ValueError:
                return Stop.DAMAGED
            stop = keys.add_records(
                records,
                batch.base_offset,
                batch.last_offset_delta,
                batch.record_count,
                self._what.first_dirty_offset,
            )
            if stop != Stop.END:
                return Stop(stop)
        keys.latest_offset = batch.last_offset
        return Stop.SPECIAL

    # Writing segments

    def write_segment(
        self, group: Sequence[Span], transactions: Transactions, end_offset: int
    ) -> CleanedSegment:
        what = self._what
        base_offset = group[0].base_offset
        rewriter = self._implementation.Rewriter(
            self._keys,
            what.kept_offsets,
            what.now_ms,
            what.delete_retention_ms,
            what.index_interval_bytes,
        )
        indexes = CleanedIndexes(base_offset)
        unreadable = 0
        with NewFile(
            self._file_system, self._path(base_offset, layout.LOG_SUFFIX + layout.CLEANED_SUFFIX)
        ) as log_file:
            for span in group:
                is_last = span is group[-1]
                for chunk in self._chunks(span):
                    is_end = is_last and chunk.is_end
                    unreadable += self._rewrite(chunk, rewriter, transactions, is_end)
                    data = rewriter.take_bytes()
                    log_file.append(data)
                    self._moved(len(data))
                    indexes.add(rewriter.take_marks())
            log_file.sync()
        indexes.end(rewriter.max_timestamp_ms, rewriter.max_timestamp_offset)
        sizes = self._write_indexes(base_offset, indexes, transactions)
        # The names too: a swap may begin only when all of it survives a power cut.
        self._file_system.sync_directory(what.directory)
        return CleanedSegment(
            base_offset=base_offset,
            replaced_offsets=tuple(span.base_offset for span in group),
            bytes_before=sum(span.size_bytes for span in group),
            bytes_after=rewriter.position,
            records_before=rewriter.records_read,
            records_after=rewriter.records_kept,
            index_bytes=sizes[0],
            time_index_bytes=sizes[1],
            aborted_index_bytes=sizes[2],
            unreadable_batches=unreadable,
            keys=self._keys.count,
            end_offset=end_offset,
        )

    def _rewrite(
        self, chunk: "_Chunk", rewriter: Rewriter, transactions: Transactions, is_end: bool
    ) -> int:
        """How many batches could not be read, and were written as they are."""
        unreadable = 0
        while True:
            chunk.done, stop = rewriter.rewrite_batches(chunk.data, chunk.done, is_end)
            if stop == Stop.END:
                return unreadable
            if stop == Stop.DAMAGED:
                batch = chunk.intact_batch()
                is_rewritten = False
            else:
                batch = chunk.next_batch()
                is_last = is_end and chunk.done + batch.size_bytes == len(chunk.data)
                is_rewritten = self._rewrite_special(batch, rewriter, transactions, is_last, chunk)
            if not is_rewritten:
                rewriter.write(batch.bytes)
                unreadable += 1
            chunk.done += batch.size_bytes

    def _rewrite_special(
        self,
        batch: BatchView,
        rewriter: Rewriter,
        transactions: Transactions,
        is_last: bool,
        chunk: "_Chunk",
    ) -> bool:
        """Compressed, transactional and control batches. False if its records cannot be read."""
        is_kept_empty = is_last or self._is_last_of_producer(batch)
        if batch.is_control:
            with chunk.errors():
                is_needless = transactions.is_marker_needless(batch)
            is_dropped = is_needless and is_horizon_past(batch, self._what.now_ms)
        else:
            is_needless = False
            is_dropped = transactions.is_aborted(batch)
        if is_dropped or batch.record_count == 0:
            if is_kept_empty:
                rewriter.write(emptied(batch))
            return True
        try:
            filtered = rewriter.filter_records(
                batch.buffer[:HEADER_BYTES],
                unpacked_records(batch),
                batch.is_control,
                is_needless,
            )
        except ValueError:
            return False
        if filtered is None:
            rewriter.write(batch.bytes)
        elif filtered[0]:
            rewriter.write(rebuilt(batch, filtered))
        elif is_kept_empty:
            rewriter.write(emptied(batch))
        return True

    def _is_last_of_producer(self, batch: BatchView) -> bool:
        if batch.producer_id < 0:
            return False
        if batch.is_control:
            return (batch.producer_id, batch.producer_epoch) in self._what.kept_markers
        return batch.last_offset in self._what.kept_offsets

    def _write_indexes(
        self, base_offset: int, indexes: CleanedIndexes, transactions: Transactions
    ) -> tuple[int, int, int]:
        """Write the three index files; return their sizes, -1 for one that is not needed."""
        aborted = b"".join(aborted_index.pack(each) for each in transactions.take_still_aborted())
        self._write_index(base_offset, layout.INDEX_SUFFIX, indexes.offsets)
        self._write_index(base_offset, layout.TIME_INDEX_SUFFIX, indexes.times)
        if aborted:
            self._write_index(base_offset, layout.ABORTED_INDEX_SUFFIX, aborted)
        return len(indexes.offsets), len(indexes.times), len(aborted) or -1

    def _write_index(self, base_offset: int, suffix: str, entries: bytes | bytearray) -> None:
        path = self._path(base_offset, suffix + layout.CLEANED_SUFFIX)
        with NewFile(self._file_system, path) as file:
            file.append(entries)
            file.sync()


class _Chunk:
    """A chunk of a segment; `done` says how much of it was used."""

    def __init__(self, path: str, position: int, data: bytes, is_end: bool) -> None:
        self._path = path
        self._position = position
        self.data = data
        self.is_end = is_end
        self.done = 0

    def next_batch(self) -> BatchView:
        """The batch at `done`, which is known to be complete."""
        return BatchView(memoryview(self.data)[self.done :])

    @property
    def position(self) -> int:
        """Of `done` in the file."""
        return self._position + self.done

    def whole_batch(self) -> BatchView | None:
        """The batch at `done`, which may not be complete; None if it is not."""
        left = len(self.data) - self.done
        if left < HEADER_BYTES:
            return None
        batch = self.next_batch()
        if batch.magic != MAGIC or batch.size_bytes < HEADER_BYTES or batch.last_offset_delta < 0:
            raise self.damaged()
        return batch if batch.size_bytes <= left else None

    def intact_batch(self) -> BatchView:
        """The batch at `done`. Raises CannotCompact if its bytes are not those that were stored."""
        batch = self.whole_batch()
        if batch is None or not batch.crc_is_valid():
            raise self.damaged()
        return batch

    def data_before(self, positions: list[int]) -> bytes:
        """The data up to the first of these positions in the file that is not before `done`."""
        index = bisect_left(positions, self.position)
        if index == len(positions):
            return self.data
        return self.data[: positions[index] - self._position]

    def first_batch_bytes(self, file_bytes: int) -> int:
        """How much has to be read for a batch that is larger than the chunk."""
        if not self.is_end and len(self.data) >= HEADER_BYTES:
            size_bytes = BatchView(memoryview(self.data)).size_bytes
            if len(self.data) < size_bytes <= file_bytes - self._position:
                return size_bytes
        raise self.damaged()

    def damaged(self) -> CannotCompact:
        return CannotCompact(
            f"{self._path}: no intact batch at position {self._position + self.done}"
        )

    def errors(self) -> "_Errors":
        return _Errors(self)


class _Errors:
    """Turns a ValueError of the record readers into one that names the position."""

    def __init__(self, chunk: _Chunk) -> None:
        self._chunk = chunk

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError):
            raise CannotCompact(f"{self._chunk.damaged()} ({error})") from error
