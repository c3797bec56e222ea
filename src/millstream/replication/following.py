"""A follower's side of one partition: what to ask the leader next, and what an answer means.

A follower's log must be a prefix of its leader's before it counts for anything. Every fetch
says which epoch the follower's last record is of; the leader answers with data only if its
own log has that record, and else with the end of the last epoch that both may share. The
follower cuts there and asks again. The high watermark is never a reason to cut.

Pure: decides on numbers and the log's epochs. The driver fetches, appends and cuts.
"""

from dataclasses import dataclass

from millstream.errors import KafkaCode
from millstream.replication.leadership import Divergence
from millstream.storage.epochs import EpochCache


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """What was asked. An answer counts only as long as this is what would be asked again."""

    leader_id: int
    leader_epoch: int
    offset: int
    last_epoch: int


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """What the leader said about one partition, without the records."""

    code: KafkaCode
    high_watermark: int
    log_start_offset: int
    records_bytes: int = 0
    diverging: Divergence | None = None


@dataclass(frozen=True, slots=True)
class Ignore:
    """It answers a question that nobody has any more."""


@dataclass(frozen=True, slots=True)
class TakeRecords:
    """Append the records, if any; then the leader's marks hold here, as far as the log goes."""

    high_watermark: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class CutBack:
    """Drop the log, and what the epochs say, from here on; then ask again."""

    offset: int


@dataclass(frozen=True, slots=True)
class StartOver:
    """The leader has deleted what is missing here: begin where its log begins."""

    offset: int


@dataclass(frozen=True, slots=True)
class BackOff:
    """Ask again after a pause, or when the leadership changes."""

    code: KafkaCode


@dataclass(frozen=True, slots=True)
class CheckpointFirst:
    """The disk says that the log goes further than where it is to be cut: that has to be
    taken back first, or the next start would take the log for damaged. Then ask again."""


Step = Ignore | TakeRecords | CutBack | StartOver | BackOff | CheckpointFirst


def next_fetch(
    leader_id: int, leader_epoch: int, epochs: EpochCache, next_offset: int
) -> FetchPosition:
    return FetchPosition(leader_id, leader_epoch, next_offset, epochs.latest)


def begin_following(epochs: EpochCache, next_offset: int) -> None:
    """Forget epochs that wrote nothing here, such as a leadership of our own that is over.

    Else we would claim to have followed a log up to an epoch of which we have no record."""
    epochs.truncate_end(next_offset)


def take_answer(
    asked: FetchPosition, would_ask: FetchPosition | None, answer: FetchAnswer, epochs: EpochCache
) -> Step:
    """What to do about an answer; `would_ask` is None when nobody is followed any more."""
    if asked != would_ask:
        return Ignore()
    if answer.code == KafkaCode.OFFSET_OUT_OF_RANGE:
        # Behind the leader's first record, or a log without epochs that nothing can be
        # compared with. What the leader's log holds is what counts.
        if answer.log_start_offset < 0:
            return BackOff(answer.code)
        return StartOver(answer.log_start_offset)
    if answer.code != KafkaCode.NONE:
        return BackOff(answer.code)
    if answer.diverging is not None:
        if answer.diverging.epoch < 0:
            # A leader that cannot say is no reason to drop anything.
            return BackOff(KafkaCode.UNKNOWN_LEADER_EPOCH)
        return CutBack(cut_offset(epochs, asked.offset, answer.diverging))
    return TakeRecords(answer.high_watermark, answer.log_start_offset)


def cut_offset(epochs: EpochCache, next_offset: int, diverging: Divergence) -> int:
    """Up to where our log may equal the leader's, as far as its answer goes.

    Not beyond the end that the leader gave, nor beyond our own end of the largest epoch
    that is not above the leader's: what we have of later ones it does not have.
    """
    own_epoch, own_end = epochs.end_offset_for(diverging.epoch)
    if own_epoch < 0 or own_end < 0:
        own_end = next_offset
    return max(min(diverging.end_offset, own_end, next_offset), 0)
