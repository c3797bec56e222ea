"""A leader's view of one partition in one leader epoch: who follows, and how far.

From what followers fetch this decides the high watermark; who leaves the in-sync replicas and
who may join is in `isr`. Three rules carry the safety:

- The high watermark is the smallest end over the *maximal* in-sync set: what the store has
  and what was proposed to it. A proposal counts before it is known to be written, and the
  old set counts until it is known to be replaced.
- Only fetches of this leader epoch count, so a follower that never fetched holds it back.
- Below `min_isr` in-sync replicas it does not move, so that a replica that left is never
  behind what is committed while it may be elected.

It also tells a consumer which follower to read from (`nearest_reader`), and a follower or a
consumer where its log or its reading parted from this log (`find_divergence`).

Pure: times are milliseconds of a clock that never jumps, passed in; the log is passed in as
its end. `leader` drives this and writes the log's high watermark; `isr_proposer` writes the store.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from millstream.model import NO_LEADER_EPOCH
from millstream.replication.isr import IsrChange, wanted_change
from millstream.replication.progress import NEVER_MS, UNKNOWN_OFFSET, Follower
from millstream.storage.epochs import EpochCache


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
        # Where this leadership began: below this offset, the high watermark may be less than what
        # the previous leader has shown to clients (KIP-207).
        self.start_offset = start_offset
        self.replicas = replicas
        self.isr = isr
        self.min_isr = min(min_isr, len(replicas))
        self.version = version
        self.pending: IsrChange | None = None
        self._followers = {
            # An in-sync follower gets its full time to fetch from the new leader.
            replica: Follower(now_ms if replica in isr else NEVER_MS)
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
        """A follower fetches at `offset` in this epoch: it has everything below.

        Must not be called for a fetch that diverges or is out of range (KAFKA-13141).
        """
        follower = self._followers[replica]
        if broker_epoch != follower.broker_epoch and follower.has_fetched:
            # Restarted: the position of the previous incarnation says nothing about this one.
            follower = self._followers[replica] = Follower(follower.caught_up_ms)
        follower.fetched(
            broker_epoch=broker_epoch,
            offset=offset,
            log_start_offset=log_start_offset,
            end_offset=end_offset,
            now_ms=now_ms,
            is_sent_records=is_sent_records,
        )

    def is_stuck(self, replica: int) -> bool:
        """Has a follower shown that it cannot use the records at its offset?"""
        follower = self._followers.get(replica)
        return follower is not None and follower.is_stuck

    def nearest_reader(self, candidates: Collection[int], offset: int) -> int | None:
        """Of these followers, the one in sync that is furthest and has `offset`."""
        best: tuple[int, int] | None = None
        for replica in self.isr:
            follower = self._followers.get(replica)
            if (
                replica in candidates
                and follower is not None
                and follower.log_start_offset <= offset <= follower.next_offset
            ):
                best = max(best or (-1, -1), (follower.next_offset, replica))
        return None if best is None else best[1]

    # -- what is committed ------------------------------------------------------------

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Every replica that is in sync, or will be if the proposal is written."""
        if self.pending is None:
            return frozenset(self.isr)
        return frozenset(self.isr).union(self.pending.isr)

    @property
    def has_enough_in_sync(self) -> bool:
        return len(self.isr) >= self.min_isr

    @property
    def is_alone(self) -> bool:
        """No other replica holds what is committed: only the disk makes it safe."""
        return self.isr == (self.broker_id,)

    def high_watermark(self, current: int, own_offset: int) -> int:
        """The resulting high watermark; `own_offset` is as far as the leader counts."""
        if not self.has_enough_in_sync:
            return current
        return max(current, self._lowest_end(own_offset))

    def _lowest_end(self, own_offset: int) -> int:
        lowest = own_offset
        for replica in self.maximal_isr:
            if replica != self.broker_id:
                follower = self._followers.get(replica)
                end = UNKNOWN_OFFSET if follower is None else follower.next_offset
                lowest = min(lowest, end)
        return lowest

    def low_watermark(self, own_start_offset: int) -> int:
        """The log start on every in-sync replica: nothing below it can come back."""
        followers = [self._followers.get(each) for each in self.maximal_isr - {self.broker_id}]
        starts = [UNKNOWN_OFFSET if each is None else each.log_start_offset for each in followers]
        return min([own_start_offset, *starts])

    def is_settled(self, high_watermark: int) -> bool:
        """May clients rely on a high watermark that never decreases?"""
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
        """What to write next; None if nothing should change or a write is in flight."""
        if self.pending is not None:
            return None
        return wanted_change(
            self.isr,
            self._followers,
            broker_id=self.broker_id,
            replicas=self.replicas,
            version=self.version,
            start_offset=self.start_offset,
            high_watermark=high_watermark,
            end_offset=end_offset,
            alive=alive,
            lag_ms_max=lag_ms_max,
            now_ms=now_ms,
        )

    def propose(self, change: IsrChange) -> None:
        """The change is being written. Until its outcome is known, it counts."""
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
        """Apply the store's state in this leader epoch; False if it is not newer."""
        if version <= self.version:
            return False
        self.isr = isr
        self.min_isr = min(min_isr, len(replicas))
        self.version = version
        if replicas != self.replicas:
            self._followers = {
                # A replica that was removed and assigned again starts over.
                replica: self._followers.get(replica, Follower(NEVER_MS))
                for replica in replicas
                if replica != self.broker_id
            }
            self.replicas = replicas
        if self.pending is not None and self.pending.version < version:
            # It was written and is in this state, or can never be: its version is gone.
            self.pending = None
        return True


def find_divergence(epochs: EpochCache, *, last_epoch: int, offset: int) -> Divergence | None:
    """Has a reader whose last record is of `last_epoch`, and who fetches at `offset`, read
    something that is not in this log? (KIP-595)"""
    if last_epoch == NO_LEADER_EPOCH:
        return None
    epoch, end_offset = epochs.end_offset_for(last_epoch)
    if epoch == last_epoch and end_offset >= offset:
        return None
    return Divergence(epoch, end_offset)
