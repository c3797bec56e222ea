"""The producers of one log: their state in memory, and the snapshots it is read from.

The state is read from the newest snapshot and the log after it, when it is first needed: few
of ten thousand partitions have producers with an id. `producers` checks sequence numbers.
"""

from collections.abc import Callable, Sequence
from typing import Final

from millstream.errors import KafkaCode, KafkaError
from millstream.records.batch import BatchView
from millstream.storage.producer_budget import NODE_BUDGET, ProducerBudget
from millstream.storage.producers import ProducedBatch, ProducerStates
from millstream.storage.segments import Segments
from millstream.storage.snapshots import Snapshots, batches_before

# Much longer than a producer sends a batch again: by default that ends after two minutes.
_CROWDED_EXPIRATION_MS: Final = 3_600_000


class LogProducers:
    __slots__ = ("_budget", "_next_offset", "_segments", "_snapshots", "_states")

    def __init__(
        self,
        segments: Segments,
        snapshots: Snapshots,
        next_offset: Callable[[], int],
        budget: ProducerBudget = NODE_BUDGET,
    ) -> None:
        self._budget = budget
        self._segments = segments
        self._snapshots = snapshots
        self._next_offset = next_offset
        # None until it is read, and again when the log was cut. Otherwise it includes every batch
        # of the log. An empty log has no producers.
        self._states: ProducerStates | None = None if next_offset() else ProducerStates(budget)

    @property
    def states(self) -> ProducerStates:
        return self.load() if self._states is None else self._states

    def load(self, *, quiet_from: int | None = None) -> ProducerStates:
        """Recovery knows from which offset on no batch has a producer, which saves a pass."""
        end = self._next_offset()
        states = self._snapshots.load(self._segments.all, end, quiet_from=quiet_from)
        states.budget = self._budget
        self._budget.note_loaded(states)
        self._states = states
        return states

    def check(self, batch: BatchView) -> ProducedBatch | None:
        """The earlier append if this is a retry of it; KafkaError if it is out of order, or of a
        new producer for which there is no room."""
        states = self.load() if self._states is None else self._states
        try:
            return states.check(batch)
        except KafkaError as error:
            is_out_of_order = error.code is KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if not is_out_of_order or states.read_from is None:
                raise
        # After a restart it may be a retry of a batch that the snapshot does not have.
        states.add_earlier(batches_before(states.read_from, self._segments.all))
        states.read_from = None
        return states.check(batch)

    def read_before(self, batches: Sequence[BatchView]) -> None:
        """Have the state read before producers' batches are written: once they are in the file,
        it would be read with them, and they would be taken in twice."""
        if self._states is None and any(batch.producer_id >= 0 for batch in batches):
            self.load()

    def take_in(self, batch: BatchView) -> None:
        """A producer's batch is now in the log."""
        states = self.load() if self._states is None else self._states
        aborted = states.update(batch)
        if aborted is not None:
            self._segments.note_aborted(aborted)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that have been silent for this long, or for less while there is little
        room for others."""
        if self._states is None:
            return
        if self._budget.is_crowded():
            expiration_ms = min(expiration_ms, _CROWDED_EXPIRATION_MS)
        self._states.expire(now_ms, expiration_ms)

    def cut(self, next_offset: int) -> None:
        """The log now ends at `next_offset`, earlier than before."""
        self._states = None
        self._snapshots.remove_after(next_offset)

    def snapshot(self) -> None:
        """Write the state, as of the end of the log. Raises OSError."""
        states = self.states
        states.next_offset = self._next_offset()
        self._snapshots.take(states, keep=self._segments.base_offsets())

    def snapshot_if_read(self) -> None:
        """As `snapshot`; a state that was not read has not changed."""
        if self._states is not None and self._next_offset():
            self.snapshot()
