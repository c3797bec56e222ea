"""Three nodes, a store, clients, a network and bad luck, all from one seed, in virtual time.

First a time of faults, in which the invariants are checked; then everything is healed, clients
end, and all replicas must agree. The faults are drawn before the run, so that a run that fails can
be repeated with some of them (`shrink`).
"""

import asyncio
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

from millstream.client.aio import NoAnswer
from millstream.cluster.state import NO_LEADER, PartitionState
from millstream.cluster.stores.store import CoordinationFailed
from millstream.errors import KafkaError
from millstream.model import TopicPartition
from millstream.replication.isr import IsrChange
from millstream.replication.isr_proposer import NotWritten
from tests.simulation.checks import Checks, Violation
from tests.simulation.clients import start_clients
from tests.simulation.loop import VirtualLoop
from tests.simulation.node import Node
from tests.simulation.store import NODES, Decision, Outdated, Seen, Store, decide, places

SESSION_MS = 400
ELECTIONS_FROM_MS = 120
FAULTS_MS = 5_000
# Clients begin nothing new after it.
CLIENTS_MS = FAULTS_MS + 1_500
# Requests that were on their way are answered by then; what is left are timeouts and retries.
SETTLING_FROM_MS = CLIENTS_MS + 500
END_MS = CLIENTS_MS + 4_500
# How long nodes wait for each other.
PEER_MS = 1_500
LATE_MS = 400


@dataclass(frozen=True)
class Fault:
    """At `at_ms`: a node is killed or loses power and is back later, or a direction is cut."""

    at_ms: int
    kind: str
    node: int
    # Of a cut: where messages do not arrive; 0 is the store.
    target: int
    for_ms: int


@dataclass(frozen=True)
class Options:
    """Which luck a run has, drawn from its seed."""

    min_isr: int
    loss: float
    delay_ms: float
    # How many messages take much longer.
    late: float
    sync_every_ms: float
    # How often a process ends again while it registers.
    early_end: float
    faults: tuple[Fault, ...]


def draw_options(random: Random) -> Options:
    power_share = random.choice((0.0, 0.2, 0.6))
    cut_share = random.choice((0.2, 0.5, 0.8))
    every_ms = random.choice((150, 300, 700))
    faults = []
    at_ms = 400.0
    while at_ms < FAULTS_MS:
        node = random.choice(NODES)
        target = random.choice([each for each in (0, 0, *NODES) if each != node])
        if random.random() < cut_share:
            for_ms = int(random.expovariate(1 / 400))
            faults.append(Fault(int(at_ms), "cut", node, target, for_ms))
        else:
            kind = "power" if random.random() < power_share else "kill"
            for_ms = int(random.expovariate(1 / random.choice((5, 60, 400, 1_200))))
            faults.append(Fault(int(at_ms), kind, node, target, for_ms))
        at_ms += random.expovariate(1 / every_ms)
    return Options(
        min_isr=random.choice((1, 2, 2, 2)),
        loss=random.choice((0.0, 0.01, 0.05)),
        delay_ms=random.choice((2, 8, 25)),
        late=random.choice((0.0, 0.01, 0.05)),
        sync_every_ms=random.choice((30, 200, 1_000)),
        early_end=random.choice((0.0, 0.1, 0.5)),
        faults=tuple(faults),
    )


class World:
    def __init__(
        self,
        seed: int,
        faults: Sequence[Fault] | None = None,
        clients: "Callable[[World], None]" = start_clients,
    ) -> None:
        self._clients = clients
        self.random = Random(seed)
        self.options = draw_options(Random(seed))
        self._faults = self.options.faults if faults is None else tuple(faults)
        self.store = Store(self.options.min_isr)
        self.checks = Checks(self)
        self.is_healed = False
        self.events = 0
        # The last offset that a member has committed; each is larger than all before.
        self.last_commit = 0
        # From here on, only what was begun goes on: producers end, timeouts pass.
        self.end_of_clients_ms = CLIENTS_MS + 3_000
        self._time = 0.0
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._number = count()
        # Pairs that cannot talk, and how many faults say so; the store is 0.
        self._cuts: dict[tuple[int, int], int] = {}
        self._failure: BaseException | None = None
        self._controller_is_due = False
        self.nodes = {node_id: Node(self, node_id) for node_id in NODES}
        self.client_loop = self.new_loop()

    # -- running ----------------------------------------------------------------------

    def run(self) -> str:
        """How it ended: `converged`, or `halted`. Raises Violation."""
        try:
            self._begin()
            self._run_until(FAULTS_MS)
            self._heal()
            self._run_until(END_MS)
            return self._ending()
        finally:
            self._close()

    def run_script(self) -> None:
        """For a test with its own clients: no checks at the end."""
        try:
            self._begin()
            self._run_until(END_MS)
        finally:
            self._close()

    def _begin(self) -> None:
        for node in self.nodes.values():
            self.at(self.random.random() * 20, node.start)
            self.at(20, lambda node=node: self._beat(node))
            self.at(20, lambda node=node: self._sync(node))
        self.at(ELECTIONS_FROM_MS + 1, self._call_controller)
        for fault in self._faults:
            self.at(fault.at_ms, lambda fault=fault: self._break(fault))
        self.at(200, lambda: self.client_loop.run(lambda: self._clients(self)))

    def _close(self) -> None:
        for loop in (self.client_loop, *(node.loop for node in self.nodes.values())):
            loop.is_alive = False
        self._queue.clear()

    def _ending(self) -> str:
        for state in self.store.states.values():
            if state.leader == NO_LEADER and not (set(state.isr) | set(state.elr)):
                # Everything that could lead has lost data: waiting is right.
                return "halted"
        self.checks.converged()
        return "converged"

    def _run_until(self, end_ms: float) -> None:
        queue = self._queue
        while queue and queue[0][0] <= end_ms:
            self._time, _, call = heapq.heappop(queue)
            self.events += 1
            call()
            if self._failure is not None:
                raise self._failure

    @property
    def now_ms(self) -> int:
        return int(self._time)

    @property
    def is_closing(self) -> bool:
        return self._time > CLIENTS_MS

    @property
    def is_settling(self) -> bool:
        return self._time > SETTLING_FROM_MS

    def at(self, delay_ms: float, call: Callable[[], object]) -> None:
        heapq.heappush(self._queue, (self._time + delay_ms, next(self._number), call))

    def new_loop(self) -> VirtualLoop:
        return VirtualLoop(self.at, lambda: self._time, self._fail)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None and not isinstance(error, KafkaError | NoAnswer):
            self._failure = error

    def batches_per_fetch(self) -> int:
        return 500 if self.is_healed else self.random.choice((1, 2, 5, 50))

    # -- the network ------------------------------------------------------------------

    def _is_lost(self, source: int, target: int) -> bool:
        return (source, target) in self._cuts or (
            not self.is_healed and self.random.random() < self.options.loss
        )

    def delay(self) -> float:
        if self.is_healed:
            return 0.5 + self.random.expovariate(0.5)
        is_late = self.random.random() < self.options.late
        return 0.5 + self.random.expovariate(1 / (LATE_MS if is_late else self.options.delay_ms))

    def send(self, source: int, target: int, what: str, *arguments: object) -> None:
        """From node to node, without an answer."""
        if self._is_lost(source, target):
            return
        receiver = self.nodes[target]
        run = receiver.run
        self.at(self.delay(), lambda: self._deliver(receiver, run, what, arguments))

    def _deliver(self, node: Node, run: int, what: str, arguments: tuple[object, ...]) -> None:
        if node.is_running and node.run == run:
            node.loop.run(lambda: getattr(node, what)(*arguments))

    def ask(
        self,
        source: int,
        target: int,
        what: str,
        *arguments: object,
        loop: VirtualLoop,
        patience_ms: float = PEER_MS,
        is_dropped_late: bool = False,
    ) -> "asyncio.Future[Any]":
        """A request with an answer; NoAnswer after a while. Clients are -1. `is_dropped_late`: it
        is not delivered any more when its sender has given up waiting."""
        answer = loop.create_future()
        loop.call_later(patience_ms / 1000, _settle, answer, None, NoAnswer("no answer in time"))
        if self._is_lost(source, target):
            return answer
        node = self.nodes[target]

        def reply(value: object, error: BaseException | None) -> None:
            if not self._is_lost(target, source):
                self.at(self.delay(), lambda: loop.run(lambda: _settle(answer, value, error)))

        async def serve() -> None:
            try:
                value = await node.serve(what, *arguments)
            except (KafkaError, NoAnswer) as error:
                reply(None, error)
            else:
                reply(value, None)

        def deliver() -> None:
            # As with connections: a message to a process that has ended is gone.
            if node.is_running and not (is_dropped_late and answer.done()):
                node.loop.run(lambda: node.loop.create_task(serve()))

        self.at(self.delay(), deliver)
        return answer

    # -- the store --------------------------------------------------------------------

    def reaches_store(self, node: Node) -> bool:
        return (node.id, 0) not in self._cuts

    def begin_registration(self, node: Node) -> None:
        run = node.run
        self.at(self.delay(), lambda: self._register(node, run))

    def _register(self, node: Node, run: int) -> None:
        if not node.is_running or node.run != run or node.broker_epoch >= 0:
            return
        if not self.reaches_store(node):
            self.at(50, lambda: self._register(node, run))
            return
        # Its own old session is closed by the process that has the data directory.
        self.store.registered.pop(node.id, None)
        epoch = self.store.begin_incarnation(node.id, is_suspect=node.is_suspect)
        if not self.is_healed and self.random.random() < self.options.early_end:
            self.at(self.random.expovariate(1 / 10), lambda: self._end_run(node, run))
        self._call_controller()
        self.at(self.delay() + 5, lambda: self._finish_registration(node, run, epoch))

    def _finish_registration(self, node: Node, run: int, epoch: int) -> None:
        if not node.is_running or node.run != run:
            return
        if node.id in self.store.newcomers or not self.reaches_store(node):
            self.at(10, lambda: self._finish_registration(node, run, epoch))
            return
        try:
            self.store.register(node.id, epoch)
        except Outdated:
            self._register(node, run)
            return
        seen = self._read()
        node.loop.run(lambda: node.registered(epoch, seen))
        self._state_changed()
        self._call_controller()

    def _beat(self, node: Node) -> None:
        """Heartbeats of a session, and what its end means to either side."""
        self.at(SESSION_MS / 6, lambda: self._beat(node))
        store = self.store
        if node.is_running and node.broker_epoch >= 0 and self.reaches_store(node):
            if store.alive().get(node.id) == node.broker_epoch:
                node.heard_ms = self.now_ms
            else:
                node.loop.run(node.session_is_over)
        if node.id in store.registered and self.now_ms - node.heard_ms > SESSION_MS:
            del store.registered[node.id]
            self._call_controller()

    def _read(self) -> Seen:
        return Seen(next(self._number), dict(self.store.states), self.store.alive())

    def _state_changed(self) -> None:
        self.checks.candidates()
        for node in self.nodes.values():
            self.at(self.delay(), lambda node=node: self._notify(node))

    def _notify(self, node: Node) -> None:
        """A watch fired: what is read now arrives a little later."""
        if not self.reaches_store(node):
            self.at(60, lambda: self._notify(node))
            return
        seen, run = self._read(), node.run
        self.at(self.delay(), lambda: self._deliver(node, run, "see", (seen,)))

    def change_isr(
        self, node: Node, where: TopicPartition, change: IsrChange
    ) -> "asyncio.Future[PartitionState]":
        answer = node.loop.create_future()
        epoch, run = node.broker_epoch, node.run

        def settle(state: PartitionState | None, error: Exception | None) -> None:
            self.at(self.delay(), lambda: node.loop.run(lambda: _settle(answer, state, error)))

        def read_outcome() -> None:
            """The answer is lost: the node reads until it knows."""
            if node.run != run:
                return
            if not self.reaches_store(node):
                self.at(80, read_outcome)
            elif self.store.registered.get(node.id) != epoch:
                settle(None, CoordinationFailed("the session is over"))
            elif self.store.states[where].version == change.version:
                settle(None, NotWritten("nothing was written"))
            else:
                settle(self.store.states[where], None)

        def write() -> None:
            try:
                state = self.store.change_isr(
                    where, node.id, epoch, change.isr, change.version, dict(change.joining)
                )
            except Outdated:
                settle(None, NotWritten("another writer was faster"))
                return
            self._state_changed()
            if self._is_lost(node.id, 0):
                self.at(80, read_outcome)
            else:
                settle(state, None)

        if self._is_lost(node.id, 0):
            self.at(80, read_outcome)
        else:
            self.at(self.delay(), write)
        return answer

    # -- the controller ---------------------------------------------------------------

    def _call_controller(self) -> None:
        if not self._controller_is_due:
            self._controller_is_due = True
            self.at(self.delay(), self._control)

    def _control(self) -> None:
        """Decide on what is read now; write it a little later, if it still holds."""
        self._controller_is_due = False
        newcomers = {node: self.store.epochs[node] for node in self.store.newcomers}
        # Not before all nodes are there: otherwise the first would lead everything.
        decisions = decide(self.store) if self._time > ELECTIONS_FROM_MS else []
        if decisions or newcomers:
            self.at(self.delay(), lambda: self._write_decisions(decisions, newcomers))

    def _write_decisions(self, decisions: list[Decision], newcomers: dict[int, int]) -> None:
        is_all = True
        for decision in decisions:
            try:
                self.store.write(decision.where, decision.state, epochs=decision.epochs)
            except Outdated:
                is_all = False
        if is_all:
            for node, epoch in newcomers.items():
                if self.store.epochs[node] == epoch:
                    self.store.newcomers.pop(node, None)
        if decisions:
            self._state_changed()
        if decisions or self.store.newcomers:
            self._call_controller()

    # -- luck -------------------------------------------------------------------------

    def _sync(self, node: Node) -> None:
        self.at(self.random.expovariate(1 / self.options.sync_every_ms), lambda: self._sync(node))
        if node.is_running:
            for log in node.logs.values():
                log.sync()

    def _break(self, fault: Fault) -> None:
        node = self.nodes[fault.node]
        if fault.kind == "cut":
            pair = (fault.node, fault.target)
            self._cuts[pair] = self._cuts.get(pair, 0) + 1
            self.at(fault.for_ms, lambda: self._mend(pair))
        elif node.is_running:
            self._end(node, power=fault.kind == "power", back_ms=fault.for_ms)

    def _mend(self, pair: tuple[int, int]) -> None:
        left = self._cuts.pop(pair, 0) - 1
        if left > 0:
            self._cuts[pair] = left

    def _end_run(self, node: Node, run: int) -> None:
        if node.is_running and node.run == run and not self.is_healed:
            self._end(node, power=False, back_ms=self.random.randrange(100))

    def _end(self, node: Node, *, power: bool, back_ms: int) -> None:
        node.end(power=power)
        self.at(back_ms, lambda: self._start(node))
        if self.random.random() < 0.5:
            # Its port refuses: fenced before the session ends.
            epoch = self.store.epochs[node.id]
            self.at(15, lambda: self._fence(node.id, epoch))

    def _fence(self, node_id: int, epoch: int) -> None:
        if self.store.epochs[node_id] == epoch:
            self.store.epochs[node_id] += 1
            self._call_controller()

    def _start(self, node: Node) -> None:
        if not node.is_running:
            node.start()

    def _heal(self) -> None:
        self.is_healed = True
        self._cuts.clear()
        for node in self.nodes.values():
            self._start(node)


def _settle(answer: "asyncio.Future[Any]", value: object, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    else:
        answer.set_exception(error)
        answer.exception()


__all__ = ["Fault", "Violation", "World", "places"]
