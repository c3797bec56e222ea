"""How far one follower is, as its fetches show."""

from dataclasses import dataclass
from typing import Final

UNKNOWN_OFFSET: Final = -1
UNKNOWN_BROKER_EPOCH: Final = -1
# Long before any clock began: never caught up.
NEVER_MS: Final = -(2**63)
# A lost connection makes a follower fetch twice; more often than this, it is the records.
_REPEATS_MAX: Final = 3


@dataclass(slots=True)
class Follower:
    """What one follower has shown by its fetches in this leader epoch."""

    # When it last had everything that the leader had. Never decreases.
    caught_up_ms: int
    # It has everything below. UNKNOWN_OFFSET before its first fetch.
    next_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    log_start_offset: int = UNKNOWN_OFFSET
    # The last fetch, and the leader's end at that moment: reaching it later means that the
    # follower was caught up back then.
    fetched_ms: int = NEVER_MS
    fetched_end_offset: int = UNKNOWN_OFFSET
    # Was it sent records then; and how often has it fetched the same ones again?
    was_sent_records: bool = False
    repeats: int = 0

    @property
    def has_fetched(self) -> bool:
        return self.next_offset != UNKNOWN_OFFSET

    @property
    def is_stuck(self) -> bool:
        """Has it shown that it cannot use the records at its offset?"""
        return self.repeats >= _REPEATS_MAX

    def fetched(
        self,
        *,
        broker_epoch: int,
        offset: int,
        log_start_offset: int,
        end_offset: int,
        now_ms: int,
        is_sent_records: bool,
    ) -> None:
        """It fetches at `offset`: it has all below. The leader's log ends at `end_offset`."""
        if offset >= end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif self.has_fetched and offset >= self.fetched_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        is_repeated = self.was_sent_records and offset == self.next_offset
        self.repeats = self.repeats + 1 if is_repeated else 0
        self.was_sent_records = is_sent_records
        self.next_offset = offset
        self.broker_epoch = broker_epoch
        self.log_start_offset = log_start_offset
        self.fetched_ms = now_ms
        self.fetched_end_offset = end_offset
