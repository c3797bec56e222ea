"""The invariants that no run may break."""

from typing import TYPE_CHECKING

from tests.replication.simulation.log import Entry

if TYPE_CHECKING:
    from tests.replication.simulation.replica import Replica, Waiting
    from tests.replication.simulation.store import Store


class Violation(AssertionError):
    """A rule of replication is broken."""


class Checks:
    def __init__(self) -> None:
        # What was ever committed, by offset: the largest high watermark of any leader.
        self.truth: list[Entry] = []
        self.acknowledged_values: dict[int, int] = {}
        self._writers: dict[int, int] = {}

    def became_leader(self, replica: "Replica", epoch: int) -> None:
        """Leader completeness."""
        entries = replica.log.entries
        if entries[: len(self.truth)] != self.truth:
            have = sum(1 for ours, true in zip(entries, self.truth, strict=False) if ours == true)
            raise Violation(
                f"{replica.id} leads epoch {epoch} with {have} of {len(self.truth)} committed"
            )

    def appended(self, replica: "Replica", epoch: int) -> None:
        """Single writer per epoch."""
        if self._writers.setdefault(epoch, replica.id) != replica.id:
            raise Violation(f"epoch {epoch} is written by {replica.id} and another")

    def committed(self, replica: "Replica", before: int) -> None:
        """Log matching: what is committed is the same on every leader, for ever."""
        log = replica.log
        for offset in range(before, log.high_watermark):
            entry = log.entries[offset]
            if offset < len(self.truth):
                if self.truth[offset] != entry:
                    raise Violation(f"{replica.id} commits another record at {offset}")
            else:
                self.truth.append(entry)

    def acknowledged(self, replica: "Replica", waiting: "Waiting") -> None:
        epoch, value = replica.log.entries[waiting.offset]
        if value != waiting.value or epoch != replica.leadership.leader_epoch:
            raise Violation(f"{waiting.value} is acknowledged and is not at {waiting.offset}")
        self.acknowledged_values[waiting.value] = waiting.offset

    def candidates(self, replicas: list["Replica"], store: "Store") -> None:
        """Leader-candidate completeness: whoever may be elected has everything."""
        if not self.truth:
            return
        last = len(self.truth) - 1
        alive = store.alive()
        for replica in replicas:
            is_candidate = replica.id in store.state.isr or replica.id in store.state.elr
            if not is_candidate or alive.get(replica.id) != replica.broker_epoch:
                continue
            entries = replica.log.entries
            if len(entries) <= last or entries[last] != self.truth[last]:
                raise Violation(f"{replica.id} may be elected and misses committed records")

    def matching(self, replicas: list["Replica"]) -> None:
        """Below two replicas' high watermarks their logs are equal."""
        for one in replicas:
            for other in replicas:
                upto = min(one.log.high_watermark, other.log.high_watermark)
                if one.log.entries[:upto] != other.log.entries[:upto]:
                    raise Violation(f"{one.id} and {other.id} differ below {upto}")

    def converged(self, replicas: list["Replica"]) -> None:
        """After the faults: everyone has everything, and it is all there was."""
        first = replicas[0].log
        for replica in replicas:
            log = replica.log
            if log.entries != first.entries or log.high_watermark != log.next_offset:
                raise Violation(
                    f"no convergence: {replica.id} has {log.high_watermark}/{log.next_offset}"
                )
        if first.entries[: len(self.truth)] != self.truth:
            raise Violation("committed records are missing at the end")
        for value, offset in self.acknowledged_values.items():
            if first.entries[offset][1] != value:
                raise Violation(f"acknowledged {value} is not at {offset}")
