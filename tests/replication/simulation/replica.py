"""One node of the simulation: drives the real rules over a simulated log.

Does what the broker does, without the loop: takes roles from the store's state, fetches,
answers fetches, proposes changes of the ISR, acknowledges.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import KafkaCode
from millstream.replication.following import (
    BackOff,
    CutBack,
    FetchAnswer,
    FetchPosition,
    Ignore,
    TakeRecords,
)
from millstream.replication.leadership import Leadership, find_divergence
from tests.replication.simulation.log import Entry, SimulatedLog
from tests.replication.simulation.store import NOBODY, REPLICAS, State

if TYPE_CHECKING:
    from tests.replication.simulation.world import World

LAG_MS = 250
FETCH_TIMEOUT_MS = 120


@dataclass
class Waiting:
    """A produce with acks=all: answered when it is committed in the epoch of its append."""

    offset: int
    value: int


class Replica:
    def __init__(self, world: "World", replica_id: int) -> None:
        self.world = world
        self.id = replica_id
        self.log = SimulatedLog()
        self.is_running = False
        # Distinguishes runs of the process: what was begun in an older one never arrives.
        self.run = 0
        self._stop_roles()
        self.broker_epoch = -1
        self.alive: dict[int, int] = {}
        self.version = -1
        self.seen = -1

    # -- life -------------------------------------------------------------------------

    def start(self) -> None:
        self.is_running = True
        self.run += 1
        self.version = -1
        self._stop_roles()
        self.world.begin_registration(self)

    def registered(self, broker_epoch: int, state: State) -> None:
        self.broker_epoch = broker_epoch
        self.log.is_suspect = False
        # What was read before may still show a leadership of the incarnation before.
        self.version = state.version - 1

    def end(self, *, power: bool) -> None:
        self.is_running = False
        self.run += 1
        self.broker_epoch = -1
        self._stop_roles()
        if power:
            self.log.lose_power(self.world.random)
        else:
            self.log.forget()

    def session_is_over(self) -> None:
        """Everything stops; the process registers again."""
        self.broker_epoch = -1
        self._stop_roles()
        self.version = -1
        self.world.begin_registration(self)

    def _stop_roles(self) -> None:
        self.leadership: Leadership | None = None
        self.leader_id = NOBODY
        self.leader_epoch = -1
        self.asked = 0
        self.waiting: list[Waiting] = []

    # -- roles ------------------------------------------------------------------------

    def see(self, number: int, state: State, alive: dict[int, int]) -> None:
        """What one read of the store showed; reads are numbered in their order."""
        if number > self.seen:
            self.seen, self.alive = number, alive
        self.apply(state)

    def apply(self, state: State) -> None:
        if self.broker_epoch < 0 or state.version <= self.version:
            return
        self.version = state.version
        if state.leader == self.id:
            self._lead(state)
        elif state.leader == NOBODY:
            self._stop_roles()
        elif (state.leader, state.leader_epoch) != (self.leader_id, self.leader_epoch):
            self._follow(state)

    def _lead(self, state: State) -> None:
        if self.leadership is not None and self.leadership.leader_epoch == state.leader_epoch:
            self.leadership.adopt(
                replicas=REPLICAS, isr=state.isr, min_isr=state.min_isr, version=state.version
            )
            self._advance()
            return
        self._stop_roles()
        self.world.checks.became_leader(self, state.leader_epoch)
        self.log.epochs.assign(state.leader_epoch, self.log.next_offset)
        self.leadership = self.world.variant.leadership(
            broker_id=self.id,
            leader_epoch=state.leader_epoch,
            start_offset=self.log.next_offset,
            replicas=REPLICAS,
            isr=state.isr,
            min_isr=state.min_isr,
            version=state.version,
            now_ms=self.world.now_ms,
        )
        self._advance()

    def _follow(self, state: State) -> None:
        self._stop_roles()
        self.leader_id, self.leader_epoch = state.leader, state.leader_epoch
        self.world.variant.begin_following(self.log)
        self.fetch()

    # -- following --------------------------------------------------------------------

    def position(self) -> FetchPosition | None:
        if self.leader_id == NOBODY:
            return None
        return self.world.variant.next_fetch(self.leader_id, self.leader_epoch, self.log)

    def fetch(self) -> None:
        position = self.position()
        if position is None:
            return
        self.asked += 1
        asked = self.asked
        self.world.send(
            self.id, self.leader_id, "answer_fetch", self.id, self.broker_epoch, position
        )
        self.world.later(FETCH_TIMEOUT_MS, self, "fetch_again", asked, self.leader_epoch)

    def fetch_again(self, asked: int, leader_epoch: int) -> None:
        """The answer is lost, or so late that it will count for nothing."""
        if (asked, leader_epoch) == (self.asked, self.leader_epoch):
            self.fetch()

    def take_fetched(
        self, position: FetchPosition, answer: FetchAnswer, entries: list[Entry]
    ) -> None:
        log, variant = self.log, self.world.variant
        match variant.take_answer(position, self.position(), answer, log.epochs):
            case Ignore():
                return
            case TakeRecords(high_watermark, _):
                log.append_as_follower(entries)
                reached = min(high_watermark, log.next_offset)
                log.high_watermark = max(log.high_watermark, reached)
                self.world.later(1 if entries else 12, self, "fetch_next", self.leader_epoch)
            case CutBack(offset):
                variant.cut_back(log, offset)
                self.world.later(1, self, "fetch_next", self.leader_epoch)
            case BackOff():
                self.world.later(20, self, "fetch_next", self.leader_epoch)

    def fetch_next(self, leader_epoch: int) -> None:
        if leader_epoch == self.leader_epoch:
            self.fetch()

    # -- leading ----------------------------------------------------------------------

    def answer_fetch(self, follower: int, broker_epoch: int, position: FetchPosition) -> None:
        answer, entries = self._read(follower, broker_epoch, position)
        self.world.send(self.id, follower, "take_fetched", position, answer, entries)

    def _read(
        self, follower: int, broker_epoch: int, position: FetchPosition
    ) -> tuple[FetchAnswer, list[Entry]]:
        leadership, log = self.leadership, self.log
        if leadership is None or position.leader_epoch < leadership.leader_epoch:
            return FetchAnswer(KafkaCode.FENCED_LEADER_EPOCH, -1, -1), []
        if position.leader_epoch > leadership.leader_epoch:
            return FetchAnswer(KafkaCode.UNKNOWN_LEADER_EPOCH, -1, -1), []
        if leadership.is_stale(follower, broker_epoch):
            return FetchAnswer(KafkaCode.STALE_BROKER_EPOCH, -1, -1), []
        diverging = find_divergence(
            log.epochs, last_epoch=position.last_epoch, offset=position.offset
        )
        if diverging is not None:
            return FetchAnswer(KafkaCode.NONE, log.high_watermark, 0, diverging=diverging), []
        if position.offset > log.next_offset:
            return FetchAnswer(KafkaCode.OFFSET_OUT_OF_RANGE, -1, -1), []
        leadership.fetched(
            follower,
            broker_epoch=broker_epoch,
            offset=position.offset,
            log_start_offset=0,
            end_offset=log.next_offset,
            now_ms=self.world.now_ms,
        )
        self._advance()
        count = 500 if self.world.is_healed else self.world.random.choice((1, 2, 5, 50))
        entries = log.entries[position.offset : position.offset + count]
        return FetchAnswer(KafkaCode.NONE, log.high_watermark, 0, len(entries)), entries

    def produce(self, value: int) -> bool:
        leadership = self.leadership
        if leadership is None or not leadership.has_enough_in_sync:
            return False
        offset = self.log.append_as_leader(leadership.leader_epoch, value)
        self.world.checks.appended(self, leadership.leader_epoch)
        self.waiting.append(Waiting(offset, value))
        self._advance()
        return True

    def _advance(self) -> None:
        leadership, log = self.leadership, self.log
        assert leadership is not None
        before = log.high_watermark
        log.high_watermark = leadership.high_watermark(before, log.next_offset)
        assert log.high_watermark <= log.next_offset, "the high watermark is beyond the log"
        if log.high_watermark == before:
            return
        self.world.checks.committed(self, before)
        if leadership.is_alone:
            # Only the disk makes it safe.
            log.sync()
        while self.waiting and self.waiting[0].offset < log.high_watermark:
            self.world.checks.acknowledged(self, self.waiting.pop(0))

    def look_after_isr(self) -> None:
        leadership, log = self.leadership, self.log
        if leadership is None:
            return
        change = leadership.wanted_change(
            high_watermark=log.high_watermark,
            end_offset=log.next_offset,
            alive=self.alive,
            lag_ms_max=LAG_MS,
            now_ms=self.world.now_ms,
        )
        if change is not None:
            leadership.propose(change)
            self.world.ask_store(self, leadership, change)

    def isr_is_written(self, leadership: Leadership, state: State) -> None:
        if leadership is self.leadership:
            self.apply(state)

    def isr_is_refused(self, leadership: Leadership) -> None:
        if leadership is self.leadership and leadership.pending is not None:
            leadership.withdraw(leadership.pending)
