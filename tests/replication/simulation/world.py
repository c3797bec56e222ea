"""Three replicas, a store, a network and bad luck, all from one seed, in virtual time.

First a time of faults, in which the invariants are checked; then everything is healed and
must converge. A run that ends with nobody left who may be elected has halted, as it should.
"""

import heapq
from dataclasses import dataclass
from itertools import count
from random import Random

from millstream.replication.isr import IsrChange
from millstream.replication.leadership import Leadership
from tests.replication.simulation.checks import Checks, Violation
from tests.replication.simulation.replica import Replica
from tests.replication.simulation.store import NOBODY, REPLICAS, Outdated, Store, decide
from tests.replication.simulation.variant import REAL, Variant

SESSION_MS = 400
FAULTS_MS = 8_000
HEALED_MS = 3_000


@dataclass(frozen=True)
class Options:
    """Which luck a run has, drawn from its seed."""

    min_isr: int
    loss: float
    delay_ms: float
    fault_every_ms: float
    power_share: float
    cut_share: float
    sync_every_ms: float
    produce_every_ms: float
    # How often a process ends again while it registers.
    early_end: float


def draw_options(random: Random) -> Options:
    return Options(
        min_isr=random.choice((1, 2, 2, 2)),
        loss=random.choice((0.0, 0.01, 0.1)),
        delay_ms=random.choice((2, 8, 25)),
        fault_every_ms=random.choice((150, 300, 700)),
        power_share=random.choice((0.0, 0.2, 0.6)),
        cut_share=random.choice((0.0, 0.3, 0.7)),
        sync_every_ms=random.choice((30, 200, 1_000)),
        produce_every_ms=random.choice((5, 20, 60)),
        early_end=random.choice((0.0, 0.1, 0.5)),
    )


class World:
    def __init__(self, seed: int, variant: Variant = REAL) -> None:
        self.random = Random(seed)
        self.variant = variant
        self.options = draw_options(self.random)
        self.now_ms = 0
        self.checks = Checks()
        self.store = Store(self.options.min_isr)
        self.store.checks_joining = variant.joining_is_checked
        self.replicas = [Replica(self, replica_id) for replica_id in REPLICAS]
        self.is_healed = False
        self.events = 0
        self._queue: list[tuple[float, int, object, tuple[object, ...]]] = []
        self._number = count()
        # Pairs that cannot talk; the store is 0.
        self._cuts: set[tuple[int, int]] = set()
        self._heard: dict[int, int] = {}
        self._value = 0
        self._controller_is_due = False

    # -- running ----------------------------------------------------------------------

    def run(self) -> str:
        """How it ended: `converged`, or `halted`. Raises Violation."""
        for replica in self.replicas:
            self._at(self.random.random() * 20, replica.start)
            self._at(20, self._beat, replica)
            self._at(20, self._look_after_isr, replica)
            self._at(20, self._sync, replica)
        self._at(100, self._produce)
        self._at(300, self._break_something)
        self._run_until(FAULTS_MS)
        self._heal()
        self._run_until(FAULTS_MS + HEALED_MS)
        state = self.store.state
        if state.leader == NOBODY and not (set(state.isr) | set(state.elr)):
            return "halted"
        self.checks.matching(self.replicas)
        self.checks.converged(self.replicas)
        if set(state.isr) != set(REPLICAS):
            raise Violation(f"no convergence: in sync are {state.isr}")
        return "converged"

    def _run_until(self, end_ms: float) -> None:
        queue = self._queue
        while queue and queue[0][0] <= end_ms:
            at, _, call, arguments = heapq.heappop(queue)
            self.now_ms = int(at)
            self._time = at
            self.events += 1
            call(*arguments)  # type: ignore[operator]

    _time = 0.0

    def _at(self, delay_ms: float, call: object, *arguments: object) -> None:
        heapq.heappush(self._queue, (self._time + delay_ms, next(self._number), call, arguments))

    def later(self, delay_ms: float, replica: Replica, what: str, *arguments: object) -> None:
        """In the same run of the process, or never."""
        self._at(delay_ms, self._deliver, replica, replica.run, what, arguments)

    def _deliver(self, replica: Replica, run: int, what: str, arguments: tuple) -> None:
        if replica.is_running and replica.run == run:
            getattr(replica, what)(*arguments)

    # -- the network ------------------------------------------------------------------

    def send(self, source: int, target: int, what: str, *arguments: object) -> None:
        if (source, target) in self._cuts or self.random.random() < self._loss:
            return
        receiver = self.replicas[target - 1]
        # Runs of the process are told apart only when it arrives: as it is with connections,
        # a message to a process that has ended is gone.
        self._at(self._delay(), self._deliver, receiver, receiver.run, what, arguments)

    @property
    def _loss(self) -> float:
        return 0.0 if self.is_healed else self.options.loss

    def _delay(self) -> float:
        return 0.5 + self.random.expovariate(0.5 if self.is_healed else 1 / self.options.delay_ms)

    # -- the store --------------------------------------------------------------------

    def _reaches_store(self, replica: Replica) -> bool:
        return (replica.id, 0) not in self._cuts

    def begin_registration(self, replica: Replica) -> None:
        self._at(self._delay(), self._register, replica, replica.run)

    def _register(self, replica: Replica, run: int) -> None:
        if not replica.is_running or replica.run != run:
            return
        if not self._reaches_store(replica):
            self._at(50, self._register, replica, run)
            return
        # Its own old session is closed by the one who has the data directory.
        self.store.registered.pop(replica.id, None)
        epoch = self.store.begin_incarnation(replica.id, is_suspect=replica.log.is_suspect)
        if not self.is_healed and self.random.random() < self.options.early_end:
            self._at(self.random.expovariate(1 / 10), self._end_run, replica, run)
        if not self.variant.suspicion_is_sticky:
            replica.log.is_suspect = False
        self._call_controller()
        self._at(self._delay() + 5, self._finish_registration, replica, run, epoch)

    def _finish_registration(self, replica: Replica, run: int, epoch: int) -> None:
        if not replica.is_running or replica.run != run:
            return
        if replica.id in self.store.newcomers or not self._reaches_store(replica):
            self._at(10, self._finish_registration, replica, run, epoch)
            return
        try:
            self.store.register(replica.id, epoch)
        except Outdated:
            self._register(replica, run)
            return
        self._heard[replica.id] = self.now_ms
        replica.registered(epoch, self.store.state)
        self._state_changed()
        self._call_controller()

    def _beat(self, replica: Replica) -> None:
        """Heartbeats of a session, and what its end means to either side."""
        self._at(SESSION_MS / 6, self._beat, replica)
        store = self.store
        if replica.is_running and replica.broker_epoch >= 0 and self._reaches_store(replica):
            if store.alive().get(replica.id) == replica.broker_epoch:
                self._heard[replica.id] = self.now_ms
            else:
                replica.session_is_over()
        if replica.id in store.registered and (
            self.now_ms - self._heard.get(replica.id, 0) > SESSION_MS
        ):
            del store.registered[replica.id]
            self._call_controller()

    def _state_changed(self) -> None:
        self.checks.candidates(self.replicas, self.store)
        for replica in self.replicas:
            self._at(self._delay(), self._notify, replica)

    def _notify(self, replica: Replica) -> None:
        """A watch fired: what is read now arrives a little later."""
        if not self._reaches_store(replica):
            self._at(60, self._notify, replica)
            return
        store = self.store
        self.later(self._delay(), replica, "see", next(self._number), store.state, store.alive())

    def ask_store(self, replica: Replica, leadership: Leadership, change: IsrChange) -> None:
        if not self._reaches_store(replica) or self.random.random() < self._loss:
            # Unknown to the replica: it reads again until it knows.
            self._at(80, self._read_outcome, replica, replica.run, leadership, change)
            return
        arguments = (replica, replica.run, replica.broker_epoch, leadership, change)
        self._at(self._delay(), self._write_isr, *arguments)

    def _write_isr(
        self,
        replica: Replica,
        run: int,
        broker_epoch: int,
        leadership: Leadership,
        change: IsrChange,
    ) -> None:
        try:
            state = self.store.change_isr(
                replica.id, broker_epoch, change.isr, change.version, dict(change.joining)
            )
        except Outdated:
            if replica.run == run:
                self.later(self._delay(), replica, "isr_is_refused", leadership)
            return
        self._state_changed()
        if replica.run != run:
            return
        if self.random.random() < self._loss:
            self._at(80, self._read_outcome, replica, run, leadership, change)
        else:
            self.later(self._delay(), replica, "isr_is_written", leadership, state)

    def _read_outcome(
        self, replica: Replica, run: int, leadership: Leadership, change: IsrChange
    ) -> None:
        if replica.run != run:
            return
        if not self._reaches_store(replica):
            self._at(80, self._read_outcome, replica, run, leadership, change)
        elif self.store.state.version == change.version:
            self.later(self._delay(), replica, "isr_is_refused", leadership)
        else:
            self.later(self._delay(), replica, "isr_is_written", leadership, self.store.state)

    # -- the controller ---------------------------------------------------------------

    def _call_controller(self) -> None:
        if not self._controller_is_due:
            self._controller_is_due = True
            self._at(self._delay(), self._control)

    def _control(self) -> None:
        """Decide on what is read now; write it a little later, if it still holds."""
        self._controller_is_due = False
        decision = decide(self.store)
        if decision is not None:
            newcomers = {r: self.store.epochs[r] for r in self.store.newcomers}
            version = self.store.state.version
            self._at(self._delay(), self._write_decision, decision, version, newcomers)

    def _write_decision(self, decision: tuple, version: int, newcomers: dict[int, int]) -> None:
        state, epochs, handled = decision
        try:
            self.store.write(state, version=version, epochs={**epochs, **newcomers})
        except Outdated:
            self._call_controller()
            return
        for replica in handled:
            self.store.newcomers.pop(replica, None)
        self._state_changed()
        self._call_controller()

    # -- load and luck ----------------------------------------------------------------

    def _produce(self) -> None:
        self._at(self.random.expovariate(1 / self.options.produce_every_ms), self._produce)
        leaders = [r for r in self.replicas if r.is_running and r.leadership is not None]
        if leaders and self._time < FAULTS_MS + HEALED_MS / 2:
            self._value += 1
            self.random.choice(leaders).produce(self._value)

    def _look_after_isr(self, replica: Replica) -> None:
        self._at(40, self._look_after_isr, replica)
        if replica.is_running:
            replica.look_after_isr()

    def _sync(self, replica: Replica) -> None:
        self._at(self.random.expovariate(1 / self.options.sync_every_ms), self._sync, replica)
        if replica.is_running:
            replica.log.sync()

    def _break_something(self) -> None:
        if self.is_healed:
            return
        options, random = self.options, self.random
        self._at(random.expovariate(1 / options.fault_every_ms), self._break_something)
        if random.random() < options.cut_share:
            pair = random.choice([(a, b) for a in REPLICAS for b in (0, *REPLICAS) if a != b])
            self._cuts.add(pair)
            self._at(random.expovariate(1 / 300), self._cuts.discard, pair)
            return
        replica = random.choice(self.replicas)
        if replica.is_running:
            self._end(replica, power=random.random() < options.power_share)

    def _end_run(self, replica: Replica, run: int) -> None:
        if replica.is_running and replica.run == run and not self.is_healed:
            self._end(replica, power=False)

    def _end(self, replica: Replica, *, power: bool) -> None:
        replica.end(power=power)
        back_ms = self.random.choice((5, 60, 400, 1_200))
        self._at(self.random.expovariate(1 / back_ms), self._start, replica)
        if self.random.random() < 0.5:
            # Its port refuses: fenced before the session ends.
            self._at(15, self._fence, replica.id, self.store.epochs[replica.id])

    def _fence(self, replica_id: int, epoch: int) -> None:
        if self.store.epochs[replica_id] == epoch:
            self.store.epochs[replica_id] += 1
            self._call_controller()

    def _start(self, replica: Replica) -> None:
        if not replica.is_running:
            replica.start()

    def _heal(self) -> None:
        self.is_healed = True
        self._cuts.clear()
        for replica in self.replicas:
            self._start(replica)
