"""A replica's disk in the simulation: a log of (epoch, value), and what a power cut keeps."""

from random import Random

from millstream.storage.epochs import EpochCache

Entry = tuple[int, int]


class SimulatedLog:
    """`entries` is what the page cache has; below `synced_offset` it is on the disk."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.synced_offset = 0
        self.high_watermark = 0
        self.epochs = EpochCache([], lambda: len(self.entries))
        # On the disk: data may be lost, until the controller knows.
        self.is_suspect = False

    @property
    def next_offset(self) -> int:
        return len(self.entries)

    def append_as_leader(self, epoch: int, value: int) -> int:
        self.epochs.assign(epoch, self.next_offset)
        self.entries.append((epoch, value))
        return self.next_offset - 1

    def append_as_follower(self, entries: list[Entry]) -> None:
        for entry in entries:
            assert not self.entries or entry[0] >= self.entries[-1][0], "epochs go back"
            self.epochs.assign(entry[0], self.next_offset)
            self.entries.append(entry)

    def cut(self, offset: int) -> None:
        del self.entries[offset:]
        self.synced_offset = min(self.synced_offset, self.next_offset)
        self.high_watermark = min(self.high_watermark, self.next_offset)

    def sync(self) -> None:
        self.synced_offset = self.next_offset

    def lose_power(self, random: Random) -> None:
        """Some of what was not synced is gone; the epochs are rebuilt from the batches."""
        self.cut(random.randint(self.synced_offset, self.next_offset))
        self.forget()
        self.is_suspect = True

    def forget(self) -> None:
        """The process ended: the high watermark is a hint that may be old."""
        self.high_watermark //= 2
        self.epochs.truncate_end(self.next_offset)
