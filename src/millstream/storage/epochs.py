"""Which leader epoch wrote which offsets of one partition.

Entries are (epoch, offset of its first record), and both grow. The batches in the log carry
their epoch too, so this can always be rebuilt. A new epoch is only recorded in memory; the
file is written before the next sync and at a clean stop, which keeps the start of ten thousand
partitions cheap, and the failure of a node.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable

from millstream.model import NO_LEADER_EPOCH
from millstream.storage.checkpoints import format_epochs

NO_OFFSET = -1


class EpochCache:
    """`write` replaces the file; a cache in memory only has none."""

    def __init__(
        self,
        entries: Iterable[tuple[int, int]],
        next_offset: Callable[[], int],
        write: Callable[[bytes], None] | None = None,
    ) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start_offset in entries:
            self._epochs.append(epoch)
            self._starts.append(start_offset)
        self._next_offset = next_offset
        self._write = write
        # True if the file does not have the current entries.
        self.is_changed = False

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else NO_LEADER_EPOCH

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def save(self) -> None:
        """Not synced here: the batches carry the epoch too, and the next sync includes it."""
        if self._write is not None:
            self._write(format_epochs(self.entries))
        self.is_changed = False

    def save_if_changed(self) -> None:
        if self.is_changed:
            self.save()

    def assign(self, epoch: int, start_offset: int) -> None:
        """From `start_offset` on, `epoch` writes. Epochs that wrote nothing disappear."""
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return
        while self._epochs and (epoch <= self._epochs[-1] or start_offset <= self._starts[-1]):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.is_changed = True

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and where it ended (KIP-101, 279).

        (-1, -1) if it is unknown: the caller is ahead of us, or we know no epochs.
        """
        if epoch < 0 or not self._epochs:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, self._next_offset()
        above = bisect_right(self._epochs, epoch)
        if above == len(self._epochs):
            return NO_LEADER_EPOCH, NO_OFFSET
        if above == 0:
            return epoch, self._starts[0]
        return self._epochs[above - 1], self._starts[above]

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote `offset`, or -1."""
        index = bisect_right(self._starts, offset) - 1
        return self._epochs[index] if index >= 0 else NO_LEADER_EPOCH

    def truncate_end(self, next_offset: int) -> None:
        while self._starts and self._starts[-1] >= next_offset:
            self._epochs.pop()
            self._starts.pop()
            self.is_changed = True

    def truncate_start(self, log_start_offset: int) -> None:
        """Forget epochs that ended before the log start; the one that covers it starts there."""
        covering = bisect_right(self._starts, log_start_offset) - 1
        if covering < 0 or (covering == 0 and self._starts[0] == log_start_offset):
            return
        del self._epochs[:covering]
        del self._starts[:covering]
        self._starts[0] = log_start_offset
        self.is_changed = True

    def clear(self) -> None:
        self.is_changed = bool(self._epochs) or self.is_changed
        self._epochs.clear()
        self._starts.clear()
