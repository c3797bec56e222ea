"""Random lives of a compacted log against a dict.

Whatever is produced, deleted, rolled, compacted, restarted or killed: the newest value of
every key is there, a tombstone is there until its time is over, offsets grow, and no record
is there that was never written.

Covers storage/compaction.py, storage/compaction_plan.py.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.model import Codec
from millstream.records.columns import COMPILED, PURE, Implementation
from millstream.storage.compaction_plan import CompactionLimits
from millstream.storage.recovery import Circumstances
from tests.storage.compacted_logs import (
    CONFIG,
    Died,
    DyingFileSystem,
    keyed,
    records_in,
    run_round,
)
from tests.storage.logs import NOW_MS, append, open_log

KEYS = [b"a", b"b", b"c", b"d", b"e"]
HOUR_MS = 3_600_000
# Room for ten keys, and for three.
BUFFERS = [1 << 20, 24 * 4]
IMPLEMENTATIONS = [each for each in (PURE, COMPILED) if each is not None]


class CompactedLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = DyingFileSystem()
        self.log = open_log(self.disk, CONFIG)
        self.now_ms = NOW_MS
        self.cleaned_offset: int | None = None
        self.written: dict[int, tuple[bytes, bytes | None]] = {}
        self.newest: dict[bytes, int] = {}
        # When a tombstone was last written; it must be there for a day after a round saw it.
        self.deleted_ms: dict[bytes, int] = {}
        self.sequence = 0
        self.has_synced_offset = 0

    @rule(
        pairs=st.lists(
            st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.binary(max_size=40))),
            min_size=1,
            max_size=4,
        ),
        codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
        is_idempotent=st.booleans(),
    )
    def produce(
        self, pairs: list[tuple[bytes, bytes | None]], codec: Codec, is_idempotent: bool
    ) -> None:
        batch = keyed(
            pairs,  # type: ignore[arg-type]
            codec=codec,
            timestamp_ms=self.now_ms,
            producer_id=7 if is_idempotent else -1,
            sequence=self.sequence if is_idempotent else -1,
        )
        base = append(self.log, batch, now_ms=self.now_ms)
        self.sequence += len(pairs) if is_idempotent else 0
        for offset, (key, value) in enumerate(pairs, base):
            self.written[offset] = (key, value)
            self.newest[key] = offset
            if value is None:
                self.deleted_ms[key] = self.now_ms

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(hours=st.integers(1, 30))
    def wait(self, hours: int) -> None:
        self.now_ms += hours * HOUR_MS

    @rule(buffer_bytes=st.sampled_from(BUFFERS), implementation=st.sampled_from(IMPLEMENTATIONS))
    def compact(self, buffer_bytes: int, implementation: Implementation) -> None:
        self._compact(buffer_bytes, implementation)

    def _compact(self, buffer_bytes: int, implementation: Implementation) -> None:
        done = run_round(
            self.log,
            self.disk,
            cleaned_offset=self.cleaned_offset,
            now_ms=self.now_ms,
            limits=CompactionLimits(
                buffer_bytes * implementation.ENTRY_BYTES // 24, 0.9, buffer_bytes=1 << 16
            ),
            implementation=implementation,
        )
        if done:
            self.cleaned_offset = done[-1].end_offset

    @rule()
    def sweep(self) -> None:
        self.log.segments.sweep(self.now_ms)

    @rule()
    def restart(self) -> None:
        self.log.finish()
        self.log.close()
        self._open(was_stopped_cleanly=True, power_was_cut=False)

    @rule(call=st.integers(0, 60), implementation=st.sampled_from(IMPLEMENTATIONS))
    def die_while_compacting(self, call: int, implementation: Implementation) -> None:
        self.disk.calls_left = call
        try:
            self._compact(BUFFERS[0], implementation)
        except Died:
            pass
        self.disk.calls_left = None
        self.disk.kill()
        self._open(was_stopped_cleanly=False, power_was_cut=False)

    @rule(
        call=st.integers(0, 60),
        changes=st.integers(0, 30),
        implementation=st.sampled_from(IMPLEMENTATIONS),
    )
    def lose_power_while_compacting(
        self, call: int, changes: int, implementation: Implementation
    ) -> None:
        # What was produced is promised: it is on the disk.
        self.disk.sync_everything(0)
        self.disk.calls_left = call
        try:
            self._compact(BUFFERS[0], implementation)
        except Died:
            pass
        self.disk.calls_left = None
        self.disk.cut_after(min(changes, self.disk.unsynced_changes))
        self._open(was_stopped_cleanly=False, power_was_cut=True)

    def _open(self, *, was_stopped_cleanly: bool, power_was_cut: bool) -> None:
        circumstances = Circumstances(
            was_stopped_cleanly=was_stopped_cleanly,
            power_was_cut=power_was_cut,
            now_ms=self.now_ms,
        )
        next_offset = self.log.next_offset
        self.log = open_log(self.disk, CONFIG, circumstances)
        assert self.log.next_offset == next_offset

    @invariant()
    def the_newest_of_every_key_is_there_and_nothing_is_wrong(self) -> None:
        records = records_in(self.log)
        found: dict[bytes | None, int] = {}
        previous = -1
        for record in records:
            assert record.offset > previous
            previous = record.offset
            assert (record.key, record.value) == self.written[record.offset]
            found[record.key] = record.offset
        for key, offset in self.newest.items():
            if (
                self.written[offset][1] is not None
                or self.now_ms < self.deleted_ms[key] + CONFIG.delete_retention_ms
            ):
                assert found.get(key) == offset
            else:
                assert found.get(key) in (offset, None)

    @precondition(lambda self: self.sequence > 0)
    @invariant()
    def the_producer_is_known(self) -> None:
        producer = self.log.producers.states.get(7)
        assert producer is not None
        assert producer.last_sequence == self.sequence - 1


CompactedLog.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestCompactedLog = CompactedLog.TestCase
