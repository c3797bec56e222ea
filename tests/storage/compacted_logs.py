"""Compaction for tests: rounds over a log in memory, and a disk that dies at any call."""

from collections.abc import Callable

from millstream.model import Codec
from millstream.records.batch import BatchView, split_batches
from millstream.records.builder import build_batch
from millstream.records.columns import IMPLEMENTATION, Implementation
from millstream.records.control import ControlType, EndTransactionMarker, build_end_marker
from millstream.records.records import Record, read_records
from millstream.storage.compaction_plan import CompactionLimits, plan_round
from millstream.storage.compaction_round import CleanedSegment, compact_segments
from millstream.storage.log import Log
from millstream.storage.segment_swap import begin_swap, finish_swap, replaced_segments
from tests.storage.logs import NOW_MS, append, make_log_config, open_log
from tests.storage.memory_files import MemoryFileSystem

CONFIG = make_log_config(
    segment_bytes=400, index_interval_bytes=100, is_compacted=True, is_deleted=False
)
LIMITS = CompactionLimits(keys_bytes=1 << 20, load_factor=0.9, buffer_bytes=1 << 16)


def keyed(
    pairs: list[tuple[bytes | None, bytes | None]],
    *,
    codec: Codec = Codec.NONE,
    timestamp_ms: int = NOW_MS,
    producer_id: int = -1,
    sequence: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """A batch as a client sends it."""
    return build_batch(
        [
            Record(index, timestamp_ms + index, key, value, [("h", b"%d" % index)])
            for index, (key, value) in enumerate(pairs)
        ],
        base_offset=0,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def run_round(
    log: Log,
    disk: MemoryFileSystem,
    *,
    cleaned_offset: int | None = None,
    now_ms: int = NOW_MS,
    limits: CompactionLimits = LIMITS,
    implementation: Implementation = IMPLEMENTATION,
    between: Callable[[], None] = lambda: None,
) -> list[CleanedSegment]:
    """One round, with the syncs where the broker has them."""
    planned = plan_round(log, limits, cleaned_offset=cleaned_offset, now_ms=now_ms)
    if planned is None:
        return []
    done = []
    for cleaned in compact_segments(
        planned, disk, moved=lambda size: None, implementation=implementation
    ):
        old = replaced_segments(log, cleaned)
        assert old is not None
        begin_swap(log, cleaned)
        disk.sync_directory(log.directory)
        between()
        finish_swap(log, cleaned, old, now_ms=now_ms)
        disk.sync_directory(log.directory)
        done.append(cleaned)
    return done


def records_in(log: Log) -> list[Record]:
    return [
        record
        for segment in log.segments
        for batch in split_batches(memoryview(segment.file.read_at(0, segment.size_bytes)))
        if not batch.is_control
        for record in read_records(batch, limit_bytes=1 << 20)
    ]


def content(log: Log) -> list[tuple[int, bytes]]:
    return [
        (segment.base_offset, segment.file.read_at(0, segment.size_bytes))
        for segment in log.segments
    ]


def newest(records: list[Record]) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {record.key: (record.offset, record.value) for record in records}


def new_log() -> tuple[MemoryFileSystem, Log]:
    disk = MemoryFileSystem()
    return disk, open_log(disk, CONFIG)


def fill(log: Log, batches: int, *, keys: int = 3, codec: Codec = Codec.NONE) -> None:
    for number in range(batches):
        pair = (b"k%d" % (number % keys), b"value %d" % number)
        append(log, keyed([pair, pair], codec=codec))


def end(log: Log, producer_id: int, kind: ControlType) -> None:
    marker = build_end_marker(
        EndTransactionMarker(kind, 0),
        base_offset=0,
        producer_id=producer_id,
        producer_epoch=0,
        timestamp_ms=NOW_MS,
    )
    log.append_unchecked(BatchView(memoryview(marker)), leader_epoch=0, now_ms=NOW_MS)


class Died(BaseException):
    """The machine stopped at this call."""


class DyingFileSystem(MemoryFileSystem):
    """Dies before the n-th call that changes something; names reach the disk in order.

    A file system with a journal keeps the order of changes to a directory: a power cut
    leaves the names as they were after some number of them, never some of later ones
    without earlier ones. Bytes that were not synced are lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls_left: int | None = None
        self.calls = 0
        # The names after each change since they were last synced.
        self._histories: list[dict[str, object]] = []

    def _call(self) -> None:
        self.calls += 1
        if self.calls_left is not None:
            if self.calls_left == 0:
                raise Died
            self.calls_left -= 1

    def _note(self) -> None:
        self._histories.append(dict(self._names))

    @property
    def unsynced_changes(self) -> int:
        return len(self._histories)

    def cut_after(self, changes: int) -> None:
        """Power is gone; the first `changes` of the unsynced changes of names made it."""
        names = self._histories[changes - 1] if changes else dict(self._synced_names)
        self._histories.clear()
        self.calls_left = None
        self._synced_names = names  # type: ignore[assignment]
        self.cut_power()

    def open(self, path: str, *, create: bool) -> int:
        is_new = create and path not in self._names
        if is_new:
            self._call()
        descriptor = super().open(path, create=create)
        if is_new:
            self._note()
        return descriptor

    def write_at(self, descriptor: int, data: object, position: int) -> int:
        self._call()
        return super().write_at(descriptor, data, position)  # type: ignore[arg-type]

    def truncate(self, descriptor: int, size_bytes: int) -> None:
        self._call()
        super().truncate(descriptor, size_bytes)

    def sync(self, descriptor: int) -> None:
        self._call()
        super().sync(descriptor)

    def sync_directory(self, path: str) -> None:
        self._call()
        super().sync_directory(path)
        self._histories.clear()

    def sync_everything(self, descriptor: int) -> bool:
        self._call()
        self._histories.clear()
        return super().sync_everything(descriptor)

    def rename(self, old: str, new: str) -> None:
        self._call()
        super().rename(old, new)
        self._note()

    def remove(self, path: str) -> None:
        self._call()
        super().remove(path)
        self._note()
