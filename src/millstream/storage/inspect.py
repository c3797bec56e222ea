"""Inspects any data directory, including Kafka's, without touching it.

For tools: reads only, takes no lock, and may inspect a directory that a broker is using.
`verify` reads each log once and checks every index entry when it reaches the batch that
the entry points at. Nothing here repairs: the broker rebuilds what can be rebuilt.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from millstream.records.batch import HEADER_BYTES, MAGIC, BatchView
from millstream.records.records import Record, read_records
from millstream.records.validation import DECODED_BYTES_MAX
from millstream.storage import aborted_index, layout, offset_index, time_index
from millstream.storage.checkpoints import parse_epochs, parse_partition_metadata
from millstream.storage.producers import ProducerStates


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    path: Path
    partition: str
    base_offset: int
    size_bytes: int
    index_bytes: int
    time_index_bytes: int
    modified_ms: int


@dataclass(slots=True)
class BatchInfo:
    path: Path
    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    record_count: int
    leader_epoch: int
    codec: str
    timestamp_type: str
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    is_crc_valid: bool
    records: list[Record] = field(default_factory=list)


def list_segments(directory: Path) -> list[SegmentInfo]:
    """The segments of a partition directory, or of every partition of a data directory."""
    return [
        info for partition in partition_directories(directory) for info in _segments_in(partition)
    ]


def partition_directories(directory: Path) -> list[Path]:
    """`directory` itself if it holds segments, otherwise the ones in it that do."""
    if _segments_in(directory):
        return [directory]
    return sorted(
        child
        for child in directory.iterdir()
        if child.is_dir()
        and (
            layout.parse_directory(child.name) is not None
            or child.name == layout.CLUSTER_METADATA_DIRECTORY
        )
    )


def _segments_in(directory: Path) -> list[SegmentInfo]:
    found = []
    for path in sorted(directory.iterdir()):
        parsed = layout.parse_segment_file(path.name)
        if parsed is None or parsed.suffix != layout.LOG_SUFFIX:
            continue
        status = path.stat()
        found.append(
            SegmentInfo(
                path,
                directory.name,
                parsed.base_offset,
                status.st_size,
                _size(path.with_suffix(layout.INDEX_SUFFIX)),
                _size(path.with_suffix(layout.TIME_INDEX_SUFFIX)),
                status.st_mtime_ns // 1_000_000,
            )
        )
    return found


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def dump(path: Path, *, records: bool) -> Iterator[BatchInfo]:
    """The batches of a segment file, or of all segments of a directory, in order.

    Ends at the first position without a valid batch: `verify` says why.
    """
    paths = [path] if path.is_file() else [info.path for info in list_segments(path)]
    for segment in paths:
        with segment.open("rb") as file:
            for position, batch in _read_batches(file, segment.stat().st_size):
                info = _describe(segment, position, batch)
                if records and info.is_crc_valid:
                    try:
                        info.records = read_records(batch, limit_bytes=DECODED_BYTES_MAX)
                    except ValueError:
                        info.is_crc_valid = False
                yield info


def _read_batches(file: BinaryIO, size_bytes: int) -> Iterator[tuple[int, BatchView]]:
    """Whole batches until the bytes no longer look like one."""
    position = 0
    while position + HEADER_BYTES <= size_bytes:
        file.seek(position)
        header = BatchView(memoryview(file.read(HEADER_BYTES)))
        size = header.size_bytes
        if header.magic != MAGIC or not HEADER_BYTES <= size <= size_bytes - position:
            return
        file.seek(position)
        yield position, BatchView(memoryview(file.read(size)))
        position += size


def _describe(path: Path, position: int, batch: BatchView) -> BatchInfo:
    try:
        codec = batch.codec.name.lower()
    except ValueError:
        codec = "unknown"
    return BatchInfo(
        path,
        position,
        batch.size_bytes,
        batch.base_offset,
        batch.last_offset,
        batch.record_count,
        batch.partition_leader_epoch,
        codec,
        "LogAppendTime" if batch.timestamp_type else "CreateTime",
        batch.base_timestamp_ms,
        batch.max_timestamp_ms,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.is_transactional,
        batch.is_control,
        batch.crc_is_valid(),
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong. `position` is -1 if it has no meaning."""

    path: Path
    position: int
    message: str


def verify(directory: Path) -> Iterator[Finding]:
    """What is wrong with the logs of `directory`; nothing, if all is well."""
    for partition in partition_directories(directory):
        yield from _verify_small_files(partition)
        expected_offset = 0
        for info in _segments_in(partition):
            segment = _SegmentCheck(info, expected_offset)
            yield from segment.run()
            expected_offset = segment.next_offset


class _SegmentCheck:
    def __init__(self, info: SegmentInfo, expected_offset: int) -> None:
        self._info = info
        self._index_path = info.path.with_suffix(layout.INDEX_SUFFIX)
        self._times_path = info.path.with_suffix(layout.TIME_INDEX_SUFFIX)
        self._expected_offset = expected_offset
        self.next_offset = max(expected_offset, info.base_offset)
        # Entries that wait for their batch: position -> offset, offset -> timestamp.
        self._index: dict[int, int] = {}
        self._times: deque[tuple[int, int]] = deque()
        self._epoch = -1

    def run(self) -> Iterator[Finding]:
        info = self._info
        if info.base_offset < self._expected_offset:
            message = f"segment starts at {info.base_offset}, the last one ended at"
            yield Finding(info.path, -1, f"{message} {self._expected_offset}")
        yield from self._read_index()
        yield from self._read_times()
        yield from self._check_log()
        for position, offset in self._index.items():
            message = f"entry for offset {offset} points at {position}, where no batch starts"
            yield Finding(self._index_path, -1, message)
        for timestamp_ms, offset in self._times:
            message = f"entry {timestamp_ms} for offset {offset}, which is not in the segment"
            yield Finding(self._times_path, -1, message)
        yield from self._check_aborted()

    def _check_log(self) -> Iterator[Finding]:
        path = self._info.path
        end = 0
        with path.open("rb") as file:
            for position, batch in _read_batches(file, self._info.size_bytes):
                yield from self._check_batch(position, batch)
                end = position + batch.size_bytes
        if end < self._info.size_bytes:
            left = self._info.size_bytes - end
            yield Finding(path, end, f"no batch here; {left} bytes to the end of the file")

    def _check_batch(self, position: int, batch: BatchView) -> Iterator[Finding]:
        path = self._info.path
        if not batch.crc_is_valid():
            yield Finding(path, position, f"checksum of offset {batch.base_offset} is wrong")
        if batch.base_offset < self.next_offset:
            message = f"offset {batch.base_offset} after {self.next_offset - 1}"
            yield Finding(path, position, message)
        if batch.partition_leader_epoch < self._epoch:
            message = f"leader epoch {batch.partition_leader_epoch} after {self._epoch}"
            yield Finding(path, position, message)
        self._epoch = max(self._epoch, batch.partition_leader_epoch)
        self.next_offset = max(self.next_offset, batch.next_offset)
        indexed = self._index.pop(position, None)
        if indexed is not None and indexed < batch.base_offset:
            message = f"entry for offset {indexed} points at offset {batch.base_offset}"
            yield Finding(self._index_path, -1, message)
        while self._times and self._times[0][1] <= batch.last_offset:
            timestamp_ms, offset = self._times.popleft()
            if timestamp_ms != batch.max_timestamp_ms:
                message = f"entry {timestamp_ms} for offset {offset}, whose batch has"
                yield Finding(self._times_path, -1, f"{message} {batch.max_timestamp_ms}")

    def _read_index(self) -> Iterator[Finding]:
        entries = _entries(self._index_path, offset_index.ENTRY_BYTES)
        if entries is None:
            yield Finding(self._index_path, -1, "size is not a multiple of 8")
            return
        last = -1
        for number, (relative, position) in enumerate(offset_index.ENTRY.iter_unpack(entries)):
            if relative <= last:
                yield Finding(self._index_path, number * 8, "entries are out of order")
            last = relative
            self._index[position] = self._info.base_offset + relative

    def _read_times(self) -> Iterator[Finding]:
        entries = _entries(self._times_path, time_index.ENTRY_BYTES)
        if entries is None:
            yield Finding(self._times_path, -1, "size is not a multiple of 12")
            return
        last_ms = -1
        for number, (timestamp_ms, relative) in enumerate(time_index.ENTRY.iter_unpack(entries)):
            if timestamp_ms <= last_ms:
                yield Finding(self._times_path, number * 12, "entries are out of order")
            last_ms = timestamp_ms
            self._times.append((timestamp_ms, self._info.base_offset + relative))

    def _check_aborted(self) -> Iterator[Finding]:
        path = self._info.path.with_suffix(layout.ABORTED_INDEX_SUFFIX)
        if path.exists() and path.stat().st_size % aborted_index.ENTRY_BYTES:
            yield Finding(path, -1, f"size is not a multiple of {aborted_index.ENTRY_BYTES}")


def _entries(path: Path, entry_bytes: int) -> bytes | None:
    """The entries of an index without the zeros that Kafka pads it with."""
    if not path.exists():
        return b""
    data = path.read_bytes()
    if len(data) % entry_bytes:
        return None
    used = len(data.rstrip(b"\0"))
    return data[: -(-used // entry_bytes) * entry_bytes]


def _verify_small_files(partition: Path) -> Iterator[Finding]:
    for path in sorted(partition.iterdir()):
        try:
            if path.name == layout.EPOCHS_FILE:
                parse_epochs(path.read_bytes())
            elif path.name == layout.PARTITION_METADATA_FILE:
                parse_partition_metadata(path.read_bytes())
            elif path.name.endswith(layout.SNAPSHOT_SUFFIX):
                ProducerStates.decode(path.read_bytes(), next_offset=0)
        except ValueError as error:
            yield Finding(path, -1, str(error))
