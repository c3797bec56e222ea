"""Batches of several producers into one log, with one write."""

from typing import Final

from millstream.model import TimestampType
from millstream.storage.log import Log
from millstream.storage.rolling import has_room
from millstream.storage.values import Appended, BatchRun, LogConfig, storage_failure

# Looked up once: a member of an enum costs as much as a function call.
_CREATE_TIME: Final = TimestampType.CREATE_TIME


def append_run(log: Log, run: BatchRun, *, leader_epoch: int, now_ms: int) -> Appended | None:
    """Give the batches the next offsets and write them; None when nothing was written.

    For batches that need no more than that. Where there is more to do or to decide, each is
    to be appended by itself. Raises what an append raises.
    """
    base_offset, segment = log.next_offset, log.segments[-1]
    next_offset = base_offset + run.record_count
    if (
        leader_epoch != log.epochs.latest
        or log.epochs.is_changed
        or not _takes(log.config, run, now_ms)
        or not segment.size_bytes
        or not has_room(
            segment,
            log.config,
            size_bytes=run.size_bytes,
            timestamp_ms=run.max_timestamp_ms,
            last_offset=next_offset - 1,
            now_ms=now_ms,
        )
    ):
        return None
    try:
        position = segment.file.append(run.stamped(base_offset, leader_epoch))
    except OSError as error:
        raise storage_failure(error, log.directory) from error
    segment.note_run(run, base_offset, position)
    log.note_written(segment, run.size_bytes, next_offset, now_ms)
    return Appended(base_offset, next_offset, -1, log.log_start_offset, False)


def _takes(config: LogConfig, run: BatchRun, now_ms: int) -> bool:
    """Whether the topic asks nothing of the batches but to be written as they are."""
    return (
        config.compression_type is None
        and config.timestamp_type is _CREATE_TIME
        and not config.is_compacted
        and config.timestamp_before_max_ms >= now_ms
        and run.max_timestamp_ms - now_ms <= config.timestamp_after_max_ms
        and run.largest_bytes <= min(config.max_message_bytes, config.segment_bytes)
    )
