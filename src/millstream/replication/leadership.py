"""A leader's view of one partition in one leader epoch: who follows, and how far.

From what followers fetch this decides the high watermark, who has to leave the in-sync
replicas and who may join. Three rules carry the safety:

- The high watermark is the smallest end over the *maximal* in-sync set: what the store has
  and what was proposed to it. A proposal counts before it is known to be written, and the
  old set counts until it is known to be replaced.
- Only fetches of this leader epoch count, so a follower that never asked holds it back.
- Below `min_isr` in-sync replicas it stands still, so that a replica that left is never
  behind what is committed as long as it may be elected.

Pure: times are milliseconds of a clock that never jumps, passed in; the log is passed in as
its end. Whoever drives this writes the log's high watermark and the store.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from millstream.model import NO_LEADER_EPOCH
from millstream.storage.epochs import EpochCache

UNKNOWN_OFFSET: Final = -1
UNKNOWN_BROKER_EPOCH: Final = -1
# Long before any clock began: never caught up.
_NEVER_MS: Final = -(2**63)
# A lost connection makes a follower ask twice; more often than this, it is the records.
_REPEATS_MAX: Final = 3


@dataclass(slots=True)
class Follower:
    """What one follower has shown by its fetches in this leader epoch."""

    caught_up_ms: int
    next_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    log_start_offset: int = UNKNOWN_OFFSET
    # The last fetch, and the leader's end at that moment: reaching it later means that the
    # follower was caught up back then.
    fetched_ms: int = _NEVER_MS
    fetched_end_offset: int = UNKNOWN_OFFSET
    # Was it sent records then; and how often has it asked for the same ones again?
    was_sent_records: bool = False
    repeats: int = 0

    @property
    def has_fetched(self) -> bool:
        return self.next_offset != UNKNOWN_OFFSET


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A set of in-sync replicas to write, on the state of this version and no other."""

    isr: tuple[int, ...]
    version: int
    # The broker epoch in which each joining replica fetched: it must be the registered one.
    joining: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where the leader's log parted from a reader's: the end of the last epoch in common."""

    epoch: int
    end_offset: int


class Leadership:
    __slots__ = (
        "_followers",
        "broker_id",
        "isr",
        "leader_epoch",
        "min_isr",
        "pending",
        "replicas",
        "start_offset",
        "version",
    )

    def __init__(
        self,
        *,
        broker_id: int,
        leader_epoch: int,
        start_offset: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        min_isr: int,
        version: int,
        now_ms: int,
    ) -> None:
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        # Where this leadership began: until the high watermark is here, it may be less than
        # what the leader before has shown to clients (KIP-207).
        self.start_offset = start_offset
        self.replicas = replicas
        self.isr = isr
        self.min_isr = min(min_isr, len(replicas))
        self.version = version
        self.pending: IsrChange | None = None
        self._followers = {
            # An in-sync follower has its whole time to show itself to the new leader.
            replica: Follower(now_ms if replica in isr else _NEVER_MS)
            for replica in replicas
            if replica != broker_id
        }

    # -- what followers do ------------------------------------------------------------

    def follower(self, replica: int) -> Follower | None:
        return self._followers.get(replica)

    def is_stale(self, replica: int, broker_epoch: int) -> bool:
        """Does this come from an incarnation of the replica that has been replaced?"""
        follower = self._followers.get(replica)
        return follower is not None and broker_epoch < follower.broker_epoch

    def fetched(
        self,
        replica: int,
        *,
        broker_epoch: int,
        offset: int,
        log_start_offset: int,
        end_offset: int,
        now_ms: int,
        is_sent_records: bool = False,
    ) -> None:
        """A follower asks for `offset` in this epoch: it has everything below.

        Not to be called for a fetch that diverges or is out of range (KAFKA-13141).
        """
        follower = self._followers[replica]
        if broker_epoch != follower.broker_epoch and follower.has_fetched:
            # Restarted: what the incarnation before had says nothing about this one.
            follower = self._followers[replica] = Follower(follower.caught_up_ms)
        if offset >= end_offset:
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        elif follower.has_fetched and offset >= follower.fetched_end_offset:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        is_repeated = follower.was_sent_records and offset == follower.next_offset
        follower.repeats = follower.repeats + 1 if is_repeated else 0
        follower.was_sent_records = is_sent_records
        follower.next_offset = offset
        follower.broker_epoch = broker_epoch
        follower.log_start_offset = log_start_offset
        follower.fetched_ms = now_ms
        follower.fetched_end_offset = end_offset

    def is_stuck(self, replica: int) -> bool:
        """Has a follower shown that it cannot use the records at its offset?"""
        follower = self._followers.get(replica)
        return follower is not None and follower.repeats >= _REPEATS_MAX

    # -- what is committed ------------------------------------------------------------

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Everyone who is in sync, or will be if the proposal is written."""
        proposed = () if self.pending is None else self.pending.isr
        return frozenset(self.isr).union(proposed)

    @property
    def has_enough_in_sync(self) -> bool:
        return len(self.isr) >= self.min_isr

    @property
    def is_alone(self) -> bool:
        """Nobody else holds what is committed: only the disk makes it safe."""
        return self.isr == (self.broker_id,)

    def high_watermark(self, current: int, own_offset: int) -> int:
        """The high watermark that now holds; `own_offset` is as far as the leader counts."""
        if not self.has_enough_in_sync:
            return current
        return max(current, min(self._ends(own_offset)))

    def _ends(self, own_offset: int) -> Iterable[int]:
        for replica in self.maximal_isr:
            if replica == self.broker_id:
                yield own_offset
            else:
                follower = self._followers.get(replica)
                yield UNKNOWN_OFFSET if follower is None else follower.next_offset

    def low_watermark(self, own_start_offset: int) -> int:
        """Where the log starts on every replica that is in sync: below it nothing comes back."""
        followers = [self._followers.get(each) for each in self.maximal_isr - {self.broker_id}]
        starts = [UNKNOWN_OFFSET if each is None else each.log_start_offset for each in followers]
        return min([own_start_offset, *starts])

    def is_settled(self, high_watermark: int) -> bool:
        """May clients rely on a high watermark that never goes back?"""
        return high_watermark >= self.start_offset

    # -- who is in sync ---------------------------------------------------------------

    def wanted_change(
        self,
        *,
        high_watermark: int,
        end_offset: int,
        alive: Mapping[int, int],
        lag_ms_max: int,
        now_ms: int,
    ) -> IsrChange | None:
        """What to write next, None while nothing is to change or a write is under way.

        `alive` are the brokers that may hold replicas in sync, by their broker epochs.
        """
        if self.pending is not None:
            return None
        behind = {
            replica
            for replica in self.isr
            if replica != self.broker_id
            and self._is_behind(replica, end_offset, lag_ms_max=lag_ms_max, now_ms=now_ms)
        }
        joining = {
            replica: follower.broker_epoch
            for replica, follower in self._followers.items()
            if replica not in self.isr
            and self._may_join(follower, high_watermark)
            and alive.get(replica, UNKNOWN_BROKER_EPOCH) == follower.broker_epoch
        }
        if not behind and not joining:
            return None
        wanted = (set(self.isr) - behind) | joining.keys()
        isr = tuple(replica for replica in self.replicas if replica in wanted)
        return IsrChange(isr, self.version, tuple(joining.items()))

    def _is_behind(self, replica: int, end_offset: int, *, lag_ms_max: int, now_ms: int) -> bool:
        follower = self._followers.get(replica)
        if follower is None:
            # No longer assigned; the controller has not taken it out yet.
            return True
        if follower.next_offset >= end_offset:
            return False
        return now_ms - follower.caught_up_ms > lag_ms_max

    def _may_join(self, follower: Follower, high_watermark: int) -> bool:
        return follower.has_fetched and follower.next_offset >= max(
            high_watermark, self.start_offset
        )

    def propose(self, change: IsrChange) -> None:
        """The change is being written. Until it is known what became of it, it counts."""
        assert self.pending is None, "one change at a time"
        assert change.version == self.version, "decided on an older state"
        self.pending = change

    def withdraw(self, change: IsrChange) -> None:
        """The store refused the change for certain: nothing was written."""
        if self.pending is change:
            self.pending = None

    def adopt(
        self, *, replicas: tuple[int, ...], isr: tuple[int, ...], min_isr: int, version: int
    ) -> bool:
        """The store's state in this leader epoch; False when it is not news."""
        if version <= self.version:
            return False
        self.isr = isr
        self.min_isr = min(min_isr, len(replicas))
        self.version = version
        if replicas != self.replicas:
            self._followers = {
                # One that was taken away and given back begins anew.
                replica: self._followers.get(replica, Follower(_NEVER_MS))
                for replica in replicas
                if replica != self.broker_id
            }
            self.replicas = replicas
        if self.pending is not None and self.pending.version < version:
            # It was written and is in this state, or can never be: its version is gone.
            self.pending = None
        return True


def find_divergence(epochs: EpochCache, *, last_epoch: int, offset: int) -> Divergence | None:
    """Has a reader whose last record is of `last_epoch`, and who asks for `offset`, read
    something that is not in this log? (KIP-595)"""
    if last_epoch == NO_LEADER_EPOCH:
        return None
    epoch, end_offset = epochs.end_offset_for(last_epoch)
    if epoch == last_epoch and end_offset >= offset:
        return None
    return Divergence(epoch, end_offset)
