"""Applies a leader's response to a follower's log."""

import logging

from millstream.model import NO_LEADER_EPOCH
from millstream.records.batch import HEADER_BYTES, batch_size_at
from millstream.replication.following import CutBack, StartOver, Step, TakeRecords
from millstream.storage.log import Log

log = logging.getLogger(__name__)


def do_step(
    partition_log: Log,
    step: Step,
    records: memoryview,
    *,
    unclean_epoch: int = NO_LEADER_EPOCH,
    now_ms: int | None = None,
) -> None:
    """`unclean_epoch` is that of the last unclean election."""
    match step:
        case TakeRecords():
            _take_records(partition_log, step, records, now_ms)
        case CutBack():
            _log_cut(partition_log, step.offset, unclean_epoch)
            _cut_back(partition_log, step.offset)
        case StartOver():
            log.warning(
                "%s starts over at %d: the leader's log begins there",
                partition_log.partition,
                step.offset,
            )
            partition_log.truncate_fully_and_start_at(step.offset)
            partition_log.high_watermark = step.offset
        case _:
            return


def _take_records(
    partition_log: Log, step: TakeRecords, records: memoryview, now_ms: int | None
) -> None:
    whole = whole_batches(records)
    if whole:
        partition_log.append_as_follower(whole, now_ms)
    reached = min(step.high_watermark, partition_log.next_offset)
    partition_log.high_watermark = max(partition_log.high_watermark, reached)
    if step.log_start_offset > partition_log.log_start_offset:
        partition_log.delete_records_before(
            min(step.log_start_offset, partition_log.high_watermark)
        )


def _log_cut(partition_log: Log, offset: int, unclean_epoch: int) -> None:
    """A cut after a clean election loses nothing that was committed, and is part of following."""
    next_offset = partition_log.next_offset
    log.info(
        "cuts %s from %d to %d, where it parts from the leader's log",
        partition_log.partition,
        next_offset,
        offset,
    )
    committed = max(partition_log.high_watermark - offset, 0)
    epoch = partition_log.epochs.epoch_at(offset)
    if committed or (offset < next_offset and epoch < unclean_epoch):
        # After a kill the high watermark is that of the last checkpoint: what is above it may
        # have been committed, too.
        log.error(
            "%s: offsets %d to %d, written from epoch=%d on, are lost after an unclean election"
            " (epoch=%s): %d of them are known to be committed, all may have been acknowledged",
            partition_log.partition,
            offset,
            next_offset - 1,
            epoch,
            unclean_epoch if unclean_epoch >= 0 else "unknown",
            committed,
        )


def _cut_back(partition_log: Log, offset: int) -> None:
    partition_log.truncate_to(offset)
    # Even if the log did not get shorter: an epoch of ours may have written nothing.
    partition_log.epochs.truncate_end(min(offset, partition_log.next_offset))
    partition_log.epochs.save_if_changed()


def whole_batches(records: memoryview) -> memoryview:
    """The response without the batch that its size limit cut in two."""
    position, end = 0, len(records)
    while end - position >= HEADER_BYTES:
        size_bytes = batch_size_at(records, position)
        if size_bytes < HEADER_BYTES or size_bytes > end - position:
            break
        position += size_bytes
    return records if position == end else records[:position]
