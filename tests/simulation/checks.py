"""The invariants that no run may break."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millstream.cluster.state import NO_LEADER
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.records.batch import BatchView
from millstream.records.control import ControlType, read_end_marker
from millstream.records.records import iterate_records
from tests.simulation.log import SimulatedLog
from tests.simulation.store import DATA_PARTITIONS, DATA_TOPIC, NODES, places

if TYPE_CHECKING:
    from tests.simulation.world import World


class Violation(AssertionError):
    """A rule is broken."""


@dataclass
class Transaction:
    """What its producer knows. Values are unique; `offset` is what it commits for its group."""

    name: str
    number: int
    values: list[bytes] = field(default_factory=list)
    has_offset: bool = False
    # Of the request that ends it: None as long as none was sent.
    is_commit: bool | None = None
    is_acknowledged: bool = False


@dataclass
class Commit:
    value: int
    generation: int
    sent_ms: float
    acknowledged_ms: float | None = None


class Checks:
    def __init__(self, world: "World") -> None:
        self._world = world
        # What was ever committed, by partition.
        self.truth: dict[TopicPartition, list[bytes]] = {where: [] for where in places()}
        # The epochs of the leaders that committed it.
        self._epochs: dict[TopicPartition, list[int]] = {where: [] for where in places()}
        self._compared: dict[tuple[int, TopicPartition, int], int] = {}
        self._writers: dict[tuple[TopicPartition, int], int] = {}
        # Transactions by number, and the transaction of each value.
        self.transactions: dict[int, Transaction] = {}
        self._of_value: dict[bytes, Transaction] = {}
        self._plain: dict[bytes, bool] = {}
        # What read_committed readers have seen.
        self.visible: dict[TopicPartition, set[bytes]] = {where: set() for where in places()}
        self._read_upto: dict[TopicPartition, int] = {}
        # The epochs that were given to producers that took over an id, and when.
        self._given: dict[str, list[tuple[tuple[int, int], float]]] = {}
        self._commits: dict[tuple[str, int], list[Commit]] = {}
        self._owners: dict[tuple[str, int, int], str] = {}
        self.holders: dict[tuple[str, int], dict[str, float]] = {}
        # Of the groups of transactional producers, at the very end.
        self.settled_offsets: dict[str, int | None] = {}
        self.counts: dict[str, int] = {}

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- replication ------------------------------------------------------------------

    def became_leader(
        self, node: int, where: TopicPartition, log: SimulatedLog, epoch: int
    ) -> None:
        """Leader completeness: it has what leaders of earlier epochs have committed.

        Not what later ones have: a node that is cut off may learn of its election after another
        node was elected. Nobody follows it then."""
        known = sum(committed_in < epoch for committed_in in self._epochs[where])
        truth = self.truth[where][:known]
        if log.batches[: len(truth)] != truth:
            have = sum(a == b for a, b in zip(log.batches, truth, strict=False))
            raise Violation(f"{node} leads {where} in {epoch} with {have} of {len(truth)}")

    def appended(self, node: int, where: TopicPartition, epoch: int) -> None:
        """Single writer per epoch."""
        if self._writers.setdefault((where, epoch), node) != node:
            raise Violation(f"epoch {epoch} of {where} is written by {node} and another")

    def committed(self, node: int, where: TopicPartition, log: SimulatedLog, epoch: int) -> None:
        """Log matching: what is committed is the same on every leader, for ever."""
        truth, key = self.truth[where], (node, where, log.epochs.latest)
        number = self._compared.get(key, 0)
        while number < len(log.ends) and log.ends[number] <= log.high_watermark:
            if number < len(truth):
                if truth[number] != log.batches[number]:
                    raise Violation(f"{node} commits another batch {number} of {where}")
            else:
                truth.append(log.batches[number])
                self._epochs[where].append(epoch)
            number += 1
        self._compared[key] = number

    def candidates(self) -> None:
        """Leader-candidate completeness: a node that may be elected has everything."""
        world = self._world
        alive = world.store.alive()
        for where, state in world.store.states.items():
            truth = self.truth[where]
            for node in world.nodes.values():
                if node.id not in (*state.isr, *state.elr):
                    continue
                if not truth or alive.get(node.id) != node.broker_epoch:
                    continue
                batches = node.logs[where].batches
                if len(batches) < len(truth) or batches[len(truth) - 1] != truth[-1]:
                    raise Violation(f"{node.id} may lead {where} and lacks committed batches")

    # -- transactions -----------------------------------------------------------------

    def begins(self, name: str) -> Transaction:
        transaction = Transaction(name, len(self.transactions) + 1)
        self.transactions[transaction.number] = transaction
        return transaction

    def writes(self, transaction: Transaction, value: bytes) -> None:
        transaction.values.append(value)
        self._of_value[value] = transaction

    def writes_plainly(self, value: bytes, *, is_acknowledged: bool) -> None:
        self._plain[value] = is_acknowledged

    def gave_epoch(self, name: str, producer: tuple[int, int], sent_ms: float) -> None:
        """A producer takes over an id: with an epoch that no other has, and newer than those of
        all that had their answer when it asked."""
        for held, given_ms in self._given.setdefault(name, []):
            is_newer = producer > held if producer[0] == held[0] else True
            if producer == held or (given_ms < sent_ms and not is_newer):
                raise Violation(f"{name} got {producer} after {held}")
        self._given[name].append((producer, self._world._time))

    def ended(self, transaction: Transaction, producer: tuple[int, int], sent_ms: float) -> None:
        """Fencing: an end that was sent after another producer took over is refused."""
        transaction.is_acknowledged = True
        for newer, given_ms in self._given[transaction.name]:
            if newer[0] == producer[0] and newer > producer and given_ms < sent_ms:
                raise Violation(f"{transaction.name} {producer} ended one after {newer} took over")
        self.count("committed" if transaction.is_commit else "aborted")

    def read(self, where: TopicPartition, log: SimulatedLog) -> None:
        """A read_committed reader reads on, at a leader."""
        upto = log.last_stable_offset
        since = self._read_upto.get(where, 0)
        if upto <= since:
            return
        open_values: dict[int, list[tuple[int, bytes]]] = {}
        decided: list[tuple[int, bytes]] = []
        start = 0
        for data, end in zip(log.batches, log.ends, strict=True):
            batch = BatchView(memoryview(data))
            if batch.is_control:
                marker = read_end_marker(batch)
                held = open_values.pop(batch.producer_id, [])
                if marker is not None and marker.type is ControlType.COMMIT:
                    decided += held
            else:
                values = [(start, bytes(r.value or b"")) for r in _records(batch)]
                if batch.is_transactional:
                    open_values.setdefault(batch.producer_id, []).extend(values)
                else:
                    decided += values
            start = end
        for held in open_values.values():
            if any(offset < upto for offset, _ in held):
                raise Violation(f"{where}: an open transaction is below {upto}")
        for offset, value in decided:
            if since <= offset < upto:
                self._see(where, value)
        self._read_upto[where] = upto

    def _see(self, where: TopicPartition, value: bytes) -> None:
        if value in self.visible[where]:
            raise Violation(f"{where}: {value!r} is there twice")
        self.visible[where].add(value)
        transaction = self._of_value.get(value)
        if transaction is not None and transaction.is_commit is not True:
            raise Violation(f"{where}: {value!r} is visible and was never to be committed")

    # -- groups -----------------------------------------------------------------------

    def commits(self, group: str, partition: int, value: int, generation: int) -> Commit:
        commit = Commit(value, generation, self._world._time)
        self._commits.setdefault((group, partition), []).append(commit)
        return commit

    def acknowledged(self, group: str, partition: int, commit: Commit) -> None:
        """A member of an older generation commits nothing after one of a newer has."""
        commit.acknowledged_ms = self._world._time
        for other in self._commits[group, partition]:
            is_before = other.acknowledged_ms is not None and other.acknowledged_ms < commit.sent_ms
            if is_before and other.generation > commit.generation:
                raise Violation(f"{group} {partition}: {commit} is accepted after {other}")
        self.count("offsets committed")

    def fetched(self, group: str, partition: int, value: int | None, sent_ms: float) -> None:
        """A committed offset is never lost, and never replaced by an older one."""
        commits = self._commits.get((group, partition), [])
        found = next((each for each in commits if each.value == value), None)
        if found is None and value is not None:
            raise Violation(f"{group} {partition}: {value} was never committed")
        # An offset that was acknowledged before the commit below was sent is replaced by it.
        ended_ms = -1.0 if found is None else found.acknowledged_ms
        if ended_ms is None:
            return
        for each in commits:
            is_before = each.acknowledged_ms is not None and each.acknowledged_ms < sent_ms
            if is_before and each.sent_ms > ended_ms:
                raise Violation(f"{group} {partition}: {value} is back after {each.value}")
        self.count("offsets fetched")

    def answered(self, node: int, *, is_current: bool, has_lease: bool) -> None:
        """A coordinator that was replaced may show older offsets while it is cut off from the
        store, but not as long as it has its lease."""
        if not is_current and has_lease:
            raise Violation(f"{node} has its lease and is not the coordinator any more")

    def assigned(self, group: str, generation: int, member: str, partitions: list[int]) -> None:
        """One owner of each partition per generation."""
        for partition in partitions:
            owner = self._owners.setdefault((group, generation, partition), member)
            if owner != member:
                raise Violation(f"{group} {generation}: {partition} of {owner} and {member}")
        self.count("assignments")

    def holds(self, group: str, member: str, partitions: list[int], until_ms: float) -> None:
        """Of the consumer protocol: one owner at a time, whatever happens. `until_ms` is when the
        member gives up by itself unless it hears from the coordinator."""
        now_ms = self._world._time
        for (of_group, partition), holders in self.holders.items():
            if of_group == group and partition not in partitions:
                holders.pop(member, None)
        for partition in partitions:
            holders = self.holders.setdefault((group, partition), {})
            for other, other_until_ms in holders.items():
                if other != member and other_until_ms > now_ms:
                    raise Violation(f"{group}: {partition} of {other} and {member} at once")
            holders[member] = until_ms
        self.count("held")

    def forget_member(self, member: str) -> None:
        """It is dead, or has given up everything."""
        for holders in self.holders.values():
            holders.pop(member, None)

    # -- the end ----------------------------------------------------------------------

    def converged(self) -> None:
        """After the faults: every replica has everything, nothing is open, nothing is torn."""
        world = self._world
        for where in places():
            state = world.store.states[where]
            if set(state.isr) != set(NODES) or state.leader == NO_LEADER:
                raise Violation(f"no convergence: {where} has {state}")
            logs = [node.logs[where] for node in world.nodes.values()]
            for log in logs:
                if log.batches != logs[0].batches or log.high_watermark != log.next_offset:
                    raise Violation(f"no convergence of {where}")
            if logs[0].batches[: len(self.truth[where])] != self.truth[where]:
                raise Violation(f"committed batches of {where} are missing at the end")
            leader = world.nodes[state.leader].logs[where]
            if where.topic == DATA_TOPIC:
                if leader.last_stable_offset != leader.next_offset:
                    raise Violation(f"a transaction hangs in {where}")
                self.read(where, leader)
        for transaction in self.transactions.values():
            self._whole(transaction)
        if not self.settled_offsets:
            raise Violation("no convergence: offsets cannot be fetched")
        for name, offset in self.settled_offsets.items():
            self.last_offset(name, offset)
        everything = self._everything_visible()
        for value, is_acknowledged in self._plain.items():
            if is_acknowledged and value not in everything:
                raise Violation(f"acknowledged {value!r} is missing")

    def _everything_visible(self) -> set[bytes]:
        return set().union(
            *(self.visible[TopicPartition(DATA_TOPIC, n)] for n in range(DATA_PARTITIONS))
        )

    def _whole(self, transaction: Transaction) -> None:
        """All or nothing, and as it was acknowledged."""
        there = sum(value in self._everything_visible() for value in transaction.values)
        if transaction.is_commit is not True:
            return
        if there not in (0, len(transaction.values)):
            raise Violation(f"{transaction} is torn: {there} are visible")
        if transaction.is_acknowledged and there == 0 and transaction.values:
            raise Violation(f"{transaction} was acknowledged and has disappeared")

    def last_offset(self, name: str, group_offset: int | None) -> None:
        """The offset that a producer's transactions have committed is of the last visible one."""
        everything = self._everything_visible()
        committed = [
            each.number
            for each in self.transactions.values()
            if each.name == name and each.has_offset and set(each.values) & everything
        ]
        expected = max(committed, default=None)
        if group_offset != expected:
            raise Violation(f"{name}: offset {group_offset}, but {expected} is visible")
        self.count("offsets of transactions")


def _records(batch: BatchView) -> list[Any]:
    return list(iterate_records(batch, limit_bytes=1 << 20))


__all__ = ["Checks", "Commit", "KafkaCode", "Transaction", "Violation"]
