"""Opening a partition's directory: trusting it, checking it, or refusing it.

After a clean stop the files are trusted: one look at the directory, and the end of the
newest segment. After anything else every batch from the recovery point's segment on is
checked, and the indexes of those segments are built again. What is wrong is one of:

- a torn tail: nothing intact follows. The write was never acknowledged; it is cut, and its bytes
  are kept in `.log.torn`.
- a bad batch below the recovery point: those bytes were on the disk. Corruption.
- a bad batch above it with intact ones behind, and the machine did not lose power: the
  page cache had all of it, in order. Corruption.
- the same after a power cut: pages that were not synced reach the disk in any order, so holes
  are normal there. Synced bytes have none, so the first bad batch is behind everything that
  acks=all has promised, although the recovery point, which is written now and then, may be far
  before it. It is cut there, and the bytes are kept in `.log.torn`.

Corruption is never cut: the partition stays offline until a person decides. What was read is not
known to be on the disk; `recovery_sync` brings it there later.
"""

from collections.abc import Callable

from millstream.lazy_dataclass import dataclass
from millstream.model import NO_TOPIC_ID, TopicId, TopicPartition
from millstream.storage import layout
from millstream.storage.aborted import lacks_aborted, rebuild_aborted
from millstream.storage.checkpoints import parse_epochs, parse_partition_metadata
from millstream.storage.files import DescriptorCache, FileInfo, LogFile, read_file
from millstream.storage.log import Log
from millstream.storage.scan import SegmentScan, has_intact_batch
from millstream.storage.segment import Segment
from millstream.storage.segment_files import create_segment, make_segment
from millstream.storage.segment_swap import finish_swaps
from millstream.storage.snapshots import Snapshots
from millstream.storage.values import CorruptLog, LogConfig

_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What is known about a partition before its directory is opened."""

    was_stopped_cleanly: bool
    power_was_cut: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    # Entries that the `.txnindex` files had at the last shutdown; 0 if unknown.
    aborted_count: int = 0
    now_ms: int = 0


@dataclass(slots=True)
class _End:
    """Where a log ends, as found on the disk."""

    next_offset: int
    leader_epoch: int
    # Epochs that begin in the batches that were checked.
    epochs: list[tuple[int, int]]
    was_checked: bool
    # No batch from this offset on has a producer id; None if unknown.
    quiet_from: int | None = None
    # Whether transactions end in what was checked.
    has_markers: bool = False


def recover_log(
    directory: str,
    partition: TopicPartition,
    config: LogConfig,
    circumstances: Circumstances,
    *,
    cache: DescriptorCache,
    device: int,
    report: Callable[[str], None],
) -> Log:
    """Open the log in `directory`. Raises CorruptLog, and then has changed nothing but that
    a compaction which had been decided is finished."""
    names = cache.file_system.list(directory)
    if finish_swaps(directory, names, cache):
        names = cache.file_system.list(directory)
    found = {info.name: info for info in names}
    segments = _find_segments(directory, config, found, cache=cache, now_ms=circumstances.now_ms)
    topic_id = _read_topic_id(directory, found, segments, circumstances, cache)
    end = _find_end(segments, config, circumstances, cache=cache, report=report)
    saved_epochs = _read_epochs(directory, found, cache)
    snapshots = Snapshots(cache.file_system, directory, _snapshot_offsets(found))
    # Before the log grows past them again: they would speak of batches that are gone.
    snapshots.remove_after(end.next_offset)
    if end.was_checked:
        first = _first_to_check(segments, circumstances.recovery_point)
        if end.has_markers:
            rebuild_aborted(segments, first, snapshots)
        else:
            for segment in segments[first:]:
                segment.aborted.replace([])
    is_rebuilt = lacks_aborted(segments, circumstances.aborted_count)
    if is_rebuilt:
        report(f"{directory} lacks .txnindex files, or parts of them; rebuilding them")
        rebuild_aborted(segments, 0, snapshots)
    log = Log(
        directory,
        partition,
        topic_id,
        config,
        cache=cache,
        device=device,
        segments=segments,
        next_offset=end.next_offset,
        log_start_offset=_log_start_offset(circumstances, segments, end),
        epochs=_true_epochs(saved_epochs, segments, end),
        snapshots=snapshots,
    )
    if end.was_checked:
        log.segments.mark_unsynced_from(circumstances.recovery_point)
        # Now, and not at the first append: it may have to read the segment again.
        log.producers.load(quiet_from=end.quiet_from)
    if is_rebuilt:
        log.segments.mark_unsynced_from(segments[0].base_offset)
    if log.epochs.entries != (saved_epochs or []):
        log.epochs.save()
    if log.log_start_offset > log.next_offset:
        # Records were deleted up to a point that was then lost in a power cut.
        log.truncate_fully_and_start_at(log.log_start_offset)
    _schedule_leftovers(log, found, cache)
    return log


def _log_start_offset(circumstances: Circumstances, segments: list[Segment], end: _End) -> int:
    start_offset = circumstances.log_start_offset
    if start_offset > end.next_offset and not circumstances.power_was_cut:
        # Nothing that could have been deleted is missing: this belongs to an older partition
        # with the same name.
        start_offset = 0
    return max(start_offset, segments[0].base_offset)


def _find_segments(
    directory: str,
    config: LogConfig,
    found: dict[str, FileInfo],
    *,
    cache: DescriptorCache,
    now_ms: int,
) -> list[Segment]:
    bases = []
    for name in found:
        parsed = layout.parse_segment_file(name)
        if parsed is not None and parsed.suffix == layout.LOG_SUFFIX:
            bases.append(parsed.base_offset)
    return [
        make_segment(cache, directory, base, config, found=found, now_ms=now_ms)
        for base in sorted(bases)
    ] or [create_segment(cache, directory, 0, config, now_ms=now_ms)]


def _find_end(
    segments: list[Segment],
    config: LogConfig,
    circumstances: Circumstances,
    *,
    cache: DescriptorCache,
    report: Callable[[str], None],
) -> _End:
    if circumstances.was_stopped_cleanly:
        path = segments[-1].file.path
        # The marker says clean; the files may say otherwise.
        try:
            end = _trusted_end(segments[-1])
        except CorruptLog:
            report(f"{path} does not end with a whole batch; checking it")
        else:
            if end.next_offset >= circumstances.recovery_point:
                return end
            report(f"{path} ends before the recovery point; checking it")
    return _checked_end(segments, config, circumstances, cache=cache, report=report)


def _trusted_end(active: Segment) -> _End:
    last = active.load_tail()
    if last is None:
        return _End(active.base_offset, -1, [], was_checked=False)
    return _End(last.next_offset, last.partition_leader_epoch, [], was_checked=False)


def _checked_end(
    segments: list[Segment],
    config: LogConfig,
    circumstances: Circumstances,
    *,
    cache: DescriptorCache,
    report: Callable[[str], None],
) -> _End:
    """Check the segments from the recovery point on; cut what may be cut."""
    first = _first_to_check(segments, circumstances.recovery_point)
    end = _End(segments[first].base_offset, -1, [], was_checked=True)
    scans: list[SegmentScan] = []
    for number in range(first, len(segments)):
        base_offset = segments[number].base_offset
        is_gap = number > first and base_offset > end.next_offset
        # Compaction leaves gaps, and so may a leader. A power cut makes them, too.
        if is_gap and circumstances.power_was_cut and not config.is_compacted:
            scans[-1].problem = f"offsets {end.next_offset} to {base_offset} are missing"
            _refuse_corruption(segments, number - 1, scans[-1], circumstances)
            break
        scan = SegmentScan(segments[number], end.next_offset, end.leader_epoch)
        scan.run()
        scans.append(scan)
        end.next_offset, end.leader_epoch = scan.next_offset, scan.leader_epoch
        end.epochs += scan.epochs
        end.has_markers |= scan.has_markers
        if scan.problem is not None:
            _refuse_corruption(segments, number, scan, circumstances)
            break
    if end.next_offset < circumstances.recovery_point and scans[-1].problem is None:
        scans[-1].problem = "the file ends early"
        _refuse_corruption(segments, len(segments) - 1, scans[-1], circumstances)
    for scan in scans:
        scan.segment.adopt_indexes(scan.indexes)
    if scans[-1].problem is not None:
        _cut(segments, first + len(scans) - 1, scans[-1], cache=cache, report=report)
    end.next_offset = max(end.next_offset, segments[-1].base_offset)
    if not any(scan.has_producers for scan in scans):
        end.quiet_from = segments[first].base_offset
    return end


def _first_to_check(segments: list[Segment], recovery_point: int) -> int:
    """The segment that holds the recovery point: nothing before it can have changed."""
    first = 0
    for number, segment in enumerate(segments):
        if segment.base_offset <= recovery_point:
            first = number
    return first


def _refuse_corruption(
    segments: list[Segment], number: int, scan: SegmentScan, circumstances: Circumstances
) -> None:
    """Raise CorruptLog unless the log may end where the scan stopped."""
    if scan.next_offset < circumstances.recovery_point:
        reason = f"all up to offset {circumstances.recovery_point} was on the disk"
    elif circumstances.power_was_cut:
        return
    elif has_intact_batch(segments[number], scan.end_position + 1, scan.next_offset) or any(
        has_intact_batch(later, 0, scan.next_offset) for later in segments[number + 1 :]
    ):
        reason = "intact batches follow it"
    else:
        return
    raise CorruptLog(
        f"{scan.segment.file.path} is damaged at position {scan.end_position}, offset"
        f" {scan.next_offset} ({scan.problem}), and {reason}, so nothing was cut."
        " Restore the partition's directory from a replica or a backup; or, to give up the"
        f" records from offset {scan.next_offset} on, keep a copy, cut the file at that"
        " position, remove the segments after it, and start again"
    )


def _cut(
    segments: list[Segment],
    number: int,
    scan: SegmentScan,
    *,
    cache: DescriptorCache,
    report: Callable[[str], None],
) -> None:
    """Let the log end before the bad batch. The bytes stay in a file beside it."""
    segment = scan.segment
    lost_bytes = segment.size_bytes - scan.end_position
    torn_path = segment.file.path + layout.TORN_SUFFIX
    if scan.end_position < segment.size_bytes:
        _keep_tail(segment.file, scan.end_position, torn_path, cache)
        segment.file.truncate(scan.end_position)
    for later in segments[number + 1 :]:
        lost_bytes += later.size_bytes
        if later.size_bytes:
            later.file.rename(later.file.path + layout.TORN_SUFFIX)
            later.file.close()
        else:
            later.file.remove_when_unpinned()
        for index in later.all_files[1:]:
            index.remove_when_unpinned()
    del segments[number + 1 :]
    report(
        f"{segment.file.path}: cut {lost_bytes} bytes at position {scan.end_position}, the log"
        f" now ends at offset {scan.next_offset} ({scan.problem}); kept in {torn_path}"
    )


def _keep_tail(file: LogFile, position: int, torn_path: str, cache: DescriptorCache) -> None:
    torn = LogFile(cache, torn_path, size_bytes=0, needs_sync=False)
    torn.create()
    while position < file.size_bytes:
        data = file.read_at(position, min(_COPY_BYTES, file.size_bytes - position))
        if not data:
            break
        torn.append(data)
        position += len(data)
    torn.close()


def _read_topic_id(
    directory: str,
    found: dict[str, FileInfo],
    segments: list[Segment],
    circumstances: Circumstances,
    cache: DescriptorCache,
) -> TopicId:
    if layout.PARTITION_METADATA_FILE not in found:
        return NO_TOPIC_ID
    path = f"{directory}/{layout.PARTITION_METADATA_FILE}"
    try:
        return parse_partition_metadata(read_file(cache.file_system, path) or b"")
    except ValueError as error:
        is_empty = all(segment.size_bytes == 0 for segment in segments)
        was_never_synced = circumstances.power_was_cut and circumstances.recovery_point == 0
        if is_empty or was_never_synced:
            # It was being created when the power failed; nothing in it was promised.
            return NO_TOPIC_ID
        raise CorruptLog(f"{path}: {error}; restore it, or remove the directory") from error


def _read_epochs(
    directory: str, found: dict[str, FileInfo], cache: DescriptorCache
) -> list[tuple[int, int]] | None:
    """What the file says; None if it is missing or damaged."""
    if layout.EPOCHS_FILE not in found:
        return None
    data = read_file(cache.file_system, f"{directory}/{layout.EPOCHS_FILE}")
    try:
        return parse_epochs(data or b"")
    except ValueError:
        return None


def _true_epochs(
    saved: list[tuple[int, int]] | None, segments: list[Segment], end: _End
) -> list[tuple[int, int]]:
    """The saved epochs, unless the log contradicts them; then the log's."""
    if all(segment.size_bytes == 0 for segment in segments):
        # Nothing to compare them with; retention may have removed what they wrote.
        return [entry for entry in saved or [] if entry[1] <= end.next_offset]
    if saved is None:
        return _epochs_in_log(segments)
    if end.was_checked:
        merged = _merge_epochs(saved, end)
        return _epochs_in_log(segments) if merged is None else merged
    if not saved or saved[-1][0] < end.leader_epoch or saved[-1][1] > end.next_offset:
        return _epochs_in_log(segments)
    return saved


def _merge_epochs(entries: list[tuple[int, int]], end: _End) -> list[tuple[int, int]] | None:
    """The file for what was not checked, the batches for what was; None if they disagree."""
    if not end.epochs:
        return [entry for entry in entries if entry[1] < end.next_offset]
    first_epoch, first_offset = end.epochs[0]
    merged = [entry for entry in entries if entry[1] <= first_offset]
    if not merged or merged[-1][0] != first_epoch:
        return None
    starts = dict(entries)
    for epoch, start_offset in end.epochs[1:]:
        # Compaction may have removed an epoch's first batches: the file knows where it began.
        known = starts.get(epoch, start_offset)
        merged.append((epoch, known if merged[-1][1] < known < start_offset else start_offset))
    return merged


def _epochs_in_log(segments: list[Segment]) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    for segment in segments:
        for _, batch in segment.headers():
            epoch = batch.partition_leader_epoch
            if epoch >= 0 and (not entries or epoch > entries[-1][0]):
                entries.append((epoch, batch.base_offset))
    return entries


def _snapshot_offsets(found: dict[str, FileInfo]) -> list[int]:
    offsets = []
    for name in found:
        parsed = layout.parse_segment_file(name)
        if parsed is not None and parsed.suffix == layout.SNAPSHOT_SUFFIX:
            offsets.append(parsed.base_offset)
    return offsets


def _schedule_leftovers(log: Log, found: dict[str, FileInfo], cache: DescriptorCache) -> None:
    """Files that were being removed when the broker stopped."""
    for name, info in found.items():
        if name.endswith((layout.DELETED_SUFFIX, layout.CLEANED_SUFFIX)):
            path = f"{log.directory}/{name}"
            log.segments.schedule_removal(
                LogFile(cache, path, size_bytes=info.size_bytes, needs_sync=False)
            )
