"""A follower's side of one partition: its next fetch, and what a response means.

A follower's log must be a prefix of its leader's before it counts for anything. Every fetch
carries the epoch of the follower's last record. The leader returns data only if its own log
has that record, and otherwise the end of the last epoch that both may share. The follower
truncates its log there and fetches again. The high watermark is never a reason to truncate.

Pure: decides on numbers and the log's epochs. The driver fetches, appends and truncates.
"""

from dataclasses import dataclass

from millstream.errors import KafkaCode
from millstream.replication.leadership import Divergence
from millstream.storage.epochs import EpochCache


# One of each for every response, so not frozen: that would take several times as long.
@dataclass(slots=True)
class FetchPosition:
    """What was requested. A response counts only while the same would be requested again."""

    leader_id: int
    leader_epoch: int
    offset: int
    last_epoch: int


@dataclass(slots=True)
class FetchAnswer:
    """What the leader returned for one partition, without the records."""

    code: KafkaCode
    high_watermark: int
    log_start_offset: int
    records_bytes: int = 0
    diverging: Divergence | None = None


@dataclass(frozen=True, slots=True)
class Ignore:
    """The response belongs to an outdated request."""


@dataclass(slots=True)
class TakeRecords:
    """Append the records, if any; then the leader's offsets hold here, as far as the log goes."""

    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class CutBack:
    """Truncate the log and the epochs from here on; then fetch again."""

    offset: int


@dataclass(frozen=True, slots=True)
class StartOver:
    """The leader has deleted what is missing here: start where its log starts."""

    offset: int


@dataclass(frozen=True, slots=True)
class BackOff:
    """Fetch again after a pause, or when the leadership changes."""

    code: KafkaCode


@dataclass(frozen=True, slots=True)
class CheckpointFirst:
    """A checkpoint on the disk is beyond the truncation: it has to be rewritten first, or the
    next start would take the log for damaged. Then fetch again."""


Step = Ignore | TakeRecords | CutBack | StartOver | BackOff | CheckpointFirst


def next_fetch(
    leader_id: int, leader_epoch: int, epochs: EpochCache, next_offset: int
) -> FetchPosition:
    return FetchPosition(leader_id, leader_epoch, next_offset, epochs.latest)


def begin_following(epochs: EpochCache, next_offset: int) -> None:
    """Forget epochs that wrote nothing here, such as an own leadership that is over.

    Otherwise we would claim to have followed an epoch of which we have no record."""
    epochs.truncate_end(next_offset)


def take_answer(
    asked: FetchPosition, would_ask: FetchPosition | None, answer: FetchAnswer, epochs: EpochCache
) -> Step:
    """What to do about a response; `would_ask` is None if no leader is followed any more."""
    if asked != would_ask:
        return Ignore()
    if answer.code == KafkaCode.OFFSET_OUT_OF_RANGE:
        # Before the leader's first record, or a log without epochs that cannot be compared
        # with anything. The leader's log decides.
        if answer.log_start_offset < 0:
            return BackOff(answer.code)
        return StartOver(answer.log_start_offset)
    if answer.code != KafkaCode.NONE:
        return BackOff(answer.code)
    if answer.diverging is not None:
        if answer.diverging.epoch < 0:
            # A leader that does not know is no reason to drop anything.
            return BackOff(KafkaCode.UNKNOWN_LEADER_EPOCH)
        return CutBack(cut_offset(epochs, asked.offset, answer.diverging))
    return TakeRecords(answer.high_watermark, answer.log_start_offset)


def cut_offset(epochs: EpochCache, next_offset: int, diverging: Divergence) -> int:
    """Up to where our log may equal the leader's, by its response.

    Not beyond the end that the leader returned, nor beyond our own end of the largest epoch
    that is not above the leader's: it does not have what we have of later ones.
    """
    own_epoch, own_end = epochs.end_offset_for(diverging.epoch)
    if own_epoch < 0 or own_end < 0:
        own_end = next_offset
    return max(min(diverging.end_offset, own_end, next_offset), 0)
