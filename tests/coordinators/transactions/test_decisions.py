"""The coordinator's decisions, stepped one by one without a log, a loop or a clock."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from millstream.coordinators.codecs.transactions import Change, StoredTransaction, decode, encode
from millstream.coordinators.decision import ProducerEpoch, Ticket
from millstream.coordinators.journal import Decide
from millstream.coordinators.transactions import decisions
from millstream.coordinators.transactions.decisions import (
    EPOCH_PER_TRANSACTION,
    EndRequest,
    InitRequest,
)
from millstream.coordinators.transactions.state import (
    PREDECESSORS,
    ProducerReply,
    Status,
    TransactionEnv,
    TransactionsState,
    check_transition,
)
from millstream.errors import KafkaCode, KafkaError
from tests.coordinators.world import TRANSACTION_SETTINGS

R = TypeVar("R")
NAME = "mill"
PLACE = {"t": frozenset({0})}
OLD, NEW = 0, EPOCH_PER_TRANSACTION


@dataclass
class Transcript:
    """A shard without a log: decide, apply, look at what came out."""

    state: TransactionsState = field(default_factory=TransactionsState)
    now_ms: int = 1_000
    next_producer_id: int = 100
    deadlines: dict[str, int | None] = field(default_factory=dict)
    due: list[str] = field(default_factory=list)
    answered: list[object] = field(default_factory=list)
    log: list[tuple[bytes, bytes | None]] = field(default_factory=list)

    def env(self) -> TransactionEnv:
        return TransactionEnv(
            self.now_ms, self.now_ms, TRANSACTION_SETTINGS, Ticket(), self._take_producer_id
        )

    def _take_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def step(
        self,
        decide: Decide[TransactionsState, TransactionEnv, R, Change],
    ) -> R | None:
        env = self.env()
        decision = decide(self.state, env)
        while True:
            for change in decision.records:
                self.log.append(encode(change))
                self.state.apply(change)
            for deadline in decision.deadlines:
                self.deadlines[deadline.key.group_id] = deadline.at_ms
            self.due += decision.when_committed
            self.answered += [reply for _, reply in decision.replies]
            if decision.then is None:
                return decision.reply
            decision = decision.then(env)

    def replayed(self) -> "Transcript":
        again = Transcript(now_ms=self.now_ms, next_producer_id=self.next_producer_id)
        for key, value in self.log:
            change = decode(key, value)
            assert change is not None
            again.state.apply(change)
        return again

    @property
    def stored(self) -> StoredTransaction:
        return self.state.transactions[NAME].stored

    def init(self, *, timeout_ms: int = 60_000, current: ProducerEpoch | None = None) -> object:
        request = InitRequest(NAME, timeout_ms, current)
        return self.step(lambda state, env: decisions.init_producer(state, request, env))

    def add(self, epoch: int, *, client_version: int = OLD, producer_id: int = 100) -> object:
        return self.step(
            lambda state, env: decisions.add_partitions(
                state,
                NAME,
                ProducerEpoch(producer_id, epoch),
                PLACE,
                client_version=client_version,
                env=env,
            )
        )

    def end(
        self, epoch: int, *, commit: bool = True, client_version: int = OLD, producer_id: int = 100
    ) -> object:
        request = EndRequest(NAME, ProducerEpoch(producer_id, epoch), commit, client_version)
        return self.step(lambda state, env: decisions.end(state, request, env))

    def write_markers(self) -> None:
        prepared = self.stored
        self.due.clear()
        self.step(lambda state, env: decisions.markers_are_written(state, NAME, prepared, env))

    def time_out(self) -> None:
        self.step(lambda state, env: decisions.abort_timed_out(state, NAME, env))


def refused(call: Callable[[], object]) -> KafkaCode:
    with pytest.raises(KafkaError) as error:
        call()
    return error.value.code


def in_state(status: Status, *, client_version: int = OLD) -> Transcript:
    """A transaction that got into this state the way clients get it there; epoch 0 or 1."""
    script = Transcript()
    script.init()
    if status is Status.EMPTY:
        return script
    script.add(0, client_version=client_version)
    if status is Status.ONGOING:
        return script
    commits = status in (Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT)
    script.end(0, commit=commits, client_version=client_version)
    if status in (Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT):
        script.write_markers()
    assert script.stored.status is status
    return script


# -- the table ----------------------------------------------------------------------------

LEGAL = [(before, after) for after, befores in PREDECESSORS.items() for before in befores]
ILLEGAL = [(a, b) for a in Status for b in Status if (a, b) not in LEGAL]


@pytest.mark.parametrize(("before", "after"), LEGAL)
def test_a_legal_transition_passes(before: Status, after: Status) -> None:
    check_transition(before, after)
    assert before in PREDECESSORS[after]


@pytest.mark.parametrize(("before", "after"), ILLEGAL)
def test_an_illegal_transition_is_a_bug(before: Status, after: Status) -> None:
    with pytest.raises(AssertionError, match="cannot become"):
        check_transition(before, after)


def test_a_decision_is_final() -> None:
    assert PREDECESSORS[Status.COMPLETE_COMMIT] == {Status.PREPARE_COMMIT}
    assert PREDECESSORS[Status.COMPLETE_ABORT] == {Status.PREPARE_ABORT}
    assert Status.PREPARE_ABORT not in PREDECESSORS[Status.PREPARE_COMMIT]
    assert Status.PREPARE_COMMIT not in PREDECESSORS[Status.PREPARE_ABORT]


# What EndTxn answers in each state: (state, commit, version of the client) -> code, or the
# state it leads to. The epoch is the present one.
E = KafkaCode
END_WITH_PRESENT_EPOCH = [
    (Status.EMPTY, True, OLD, E.INVALID_TXN_STATE),
    (Status.EMPTY, False, OLD, E.INVALID_TXN_STATE),
    (Status.EMPTY, True, NEW, E.INVALID_TXN_STATE),
    (Status.EMPTY, False, NEW, Status.PREPARE_ABORT),
    (Status.ONGOING, True, OLD, Status.PREPARE_COMMIT),
    (Status.ONGOING, False, OLD, Status.PREPARE_ABORT),
    (Status.ONGOING, True, NEW, Status.PREPARE_COMMIT),
    (Status.ONGOING, False, NEW, Status.PREPARE_ABORT),
    (Status.PREPARE_COMMIT, True, OLD, E.CONCURRENT_TRANSACTIONS),
    (Status.PREPARE_COMMIT, False, OLD, E.INVALID_TXN_STATE),
    (Status.PREPARE_COMMIT, True, NEW, E.PRODUCER_FENCED),
    (Status.PREPARE_ABORT, True, OLD, E.INVALID_TXN_STATE),
    (Status.PREPARE_ABORT, False, OLD, E.CONCURRENT_TRANSACTIONS),
    (Status.PREPARE_ABORT, False, NEW, E.PRODUCER_FENCED),
    (Status.COMPLETE_COMMIT, True, OLD, Status.COMPLETE_COMMIT),
    (Status.COMPLETE_COMMIT, False, OLD, E.INVALID_TXN_STATE),
    (Status.COMPLETE_COMMIT, True, NEW, E.INVALID_TXN_STATE),
    (Status.COMPLETE_COMMIT, False, NEW, Status.PREPARE_ABORT),
    (Status.COMPLETE_ABORT, True, OLD, E.INVALID_TXN_STATE),
    (Status.COMPLETE_ABORT, False, OLD, Status.COMPLETE_ABORT),
    (Status.COMPLETE_ABORT, True, NEW, E.INVALID_TXN_STATE),
    (Status.COMPLETE_ABORT, False, NEW, Status.PREPARE_ABORT),
]
# And with the epoch of the transaction that was ended last: a request that came again.
END_WITH_LAST_EPOCH = [
    (Status.PREPARE_COMMIT, True, E.CONCURRENT_TRANSACTIONS),
    (Status.PREPARE_COMMIT, False, E.INVALID_TXN_STATE),
    (Status.PREPARE_ABORT, False, E.CONCURRENT_TRANSACTIONS),
    (Status.PREPARE_ABORT, True, E.INVALID_TXN_STATE),
    (Status.COMPLETE_COMMIT, True, Status.COMPLETE_COMMIT),
    (Status.COMPLETE_COMMIT, False, E.INVALID_TXN_STATE),
    (Status.COMPLETE_ABORT, False, Status.COMPLETE_ABORT),
    (Status.COMPLETE_ABORT, True, E.INVALID_TXN_STATE),
]


def check_end(
    script: Transcript, epoch: int, commit: bool, version: int, outcome: Status | KafkaCode
) -> None:
    before = len(script.log)
    if isinstance(outcome, Status):
        script.end(epoch, commit=commit, client_version=version)
        assert script.stored.status is outcome
    else:
        code = refused(lambda: script.end(epoch, commit=commit, client_version=version))
        assert code is outcome
        assert len(script.log) == before, "a refused request must change nothing"


@pytest.mark.parametrize(("status", "commit", "version", "outcome"), END_WITH_PRESENT_EPOCH)
def test_end_in_each_state(
    status: Status, commit: bool, version: int, outcome: Status | KafkaCode
) -> None:
    script = in_state(status, client_version=version)
    check_end(script, script.stored.producer_epoch, commit, version, outcome)


@pytest.mark.parametrize(("status", "commit", "outcome"), END_WITH_LAST_EPOCH)
def test_end_that_comes_again_with_an_epoch_per_transaction(
    status: Status, commit: bool, outcome: Status | KafkaCode
) -> None:
    script = in_state(status, client_version=NEW)
    check_end(script, script.stored.producer_epoch - 1, commit, NEW, outcome)


ADD = [
    (Status.EMPTY, Status.ONGOING),
    (Status.ONGOING, Status.ONGOING),
    (Status.PREPARE_COMMIT, E.CONCURRENT_TRANSACTIONS),
    (Status.PREPARE_ABORT, E.CONCURRENT_TRANSACTIONS),
    (Status.COMPLETE_COMMIT, Status.ONGOING),
    (Status.COMPLETE_ABORT, Status.ONGOING),
]


@pytest.mark.parametrize(("status", "outcome"), ADD)
def test_adding_partitions_in_each_state(status: Status, outcome: Status | KafkaCode) -> None:
    script = in_state(status)
    if isinstance(outcome, Status):
        assert script.add(0) is E.NONE
        assert script.stored.status is outcome
        assert script.stored.partitions == PLACE
    else:
        assert refused(lambda: script.add(0)) is outcome


@pytest.mark.parametrize("status", list(Status))
def test_a_new_producer_in_each_state(status: Status) -> None:
    script = in_state(status)
    if status in (Status.PREPARE_COMMIT, Status.PREPARE_ABORT):
        assert refused(script.init) is E.CONCURRENT_TRANSACTIONS
        return
    answer = script.init()
    if status is Status.ONGOING:
        [told] = script.answered
        assert isinstance(told, KafkaError)
        assert told.code is E.CONCURRENT_TRANSACTIONS
        assert (script.stored.status, script.stored.producer_epoch) == (Status.PREPARE_ABORT, 1)
        script.write_markers()
        answer = script.init()
        assert answer == ProducerReply(100, 2)
    else:
        assert answer == ProducerReply(100, 1)
    assert script.stored.status is Status.EMPTY


@pytest.mark.parametrize("status", list(Status))
def test_time_out_ends_only_what_is_open(status: Status) -> None:
    script = in_state(status)
    before = script.stored
    script.time_out()
    if status is Status.ONGOING:
        assert (script.stored.status, script.stored.producer_epoch) == (Status.PREPARE_ABORT, 1)
        assert script.due == [NAME]
    else:
        assert script.stored == before


# -- stories ------------------------------------------------------------------------------


def test_a_newer_client_that_was_timed_out_may_abort_and_go_on() -> None:
    """As Kafka 4.3 answers; older ones have to begin anew."""
    script = in_state(Status.ONGOING, client_version=NEW)
    script.time_out()
    script.write_markers()
    assert refused(lambda: script.end(0, client_version=NEW)) is E.INVALID_TXN_STATE
    assert script.end(0, commit=False, client_version=NEW) == ProducerReply(100, 1)
    for commit in (True, False):
        assert refused(lambda commit=commit: script.end(0, commit=commit)) is E.PRODUCER_FENCED


def test_a_timeout_must_be_positive_and_below_the_limit() -> None:
    script = Transcript()
    for timeout_ms in (0, -1, TRANSACTION_SETTINGS.timeout_max_ms + 1):
        code = refused(lambda timeout_ms=timeout_ms: script.init(timeout_ms=timeout_ms))
        assert code is E.INVALID_TRANSACTION_TIMEOUT
    assert script.init(timeout_ms=TRANSACTION_SETTINGS.timeout_max_ms) == ProducerReply(100, 0)


def test_the_older_producer_is_fenced_from_everything() -> None:
    script = in_state(Status.COMPLETE_COMMIT)
    script.init()
    assert refused(lambda: script.add(0)) is E.PRODUCER_FENCED
    assert refused(lambda: script.end(0)) is E.PRODUCER_FENCED
    stale = ProducerEpoch(100, 0)
    verify = decisions.verify_partitions
    assert refused(lambda: verify(script.state, NAME, stale, PLACE)) is E.PRODUCER_FENCED
    assert refused(lambda: script.init(current=stale)) is E.PRODUCER_FENCED


def test_another_producer_id_is_refused() -> None:
    script = in_state(Status.ONGOING)
    assert refused(lambda: script.add(0, producer_id=7)) is E.INVALID_PRODUCER_ID_MAPPING
    assert refused(lambda: script.end(0, producer_id=7)) is E.INVALID_PRODUCER_ID_MAPPING


def test_a_producer_recovers_with_what_it_has_and_may_ask_twice() -> None:
    script = in_state(Status.COMPLETE_COMMIT)
    mine = ProducerEpoch(100, 0)
    assert script.init(current=mine) == ProducerReply(100, 1)
    assert script.init(current=mine) == ProducerReply(100, 1)
    assert script.init(current=ProducerEpoch(100, 1)) == ProducerReply(100, 2)
    assert refused(lambda: script.init(current=mine)) is E.PRODUCER_FENCED


def test_a_stale_producer_that_recovers_does_not_abort_the_newer_ones_transaction() -> None:
    script = in_state(Status.COMPLETE_COMMIT)
    script.init()
    script.add(1)
    assert refused(lambda: script.init(current=ProducerEpoch(100, 0))) is E.PRODUCER_FENCED
    assert script.stored.status is Status.ONGOING


def exhausted(client_version: int) -> Transcript:
    script = Transcript()
    script.init()
    epoch = 2**15 - 2
    while script.stored.producer_epoch < epoch:
        script.init()
    script.add(epoch, client_version=client_version)
    return script


def test_when_epochs_run_out_the_next_producer_gets_a_new_id() -> None:
    script = exhausted(OLD)
    script.end(2**15 - 2)
    script.write_markers()
    assert script.init() == ProducerReply(101, 0)
    assert refused(lambda: script.add(2**15 - 2)) is E.INVALID_PRODUCER_ID_MAPPING


def test_fencing_still_has_an_epoch_left_when_they_run_out() -> None:
    script = exhausted(OLD)
    script.time_out()
    assert script.stored.producer_epoch == 2**15 - 1
    script.write_markers()
    assert script.init() == ProducerReply(101, 0)


def test_the_transaction_that_uses_the_last_epoch_ends_with_a_new_id() -> None:
    script = exhausted(NEW)
    script.end(2**15 - 2, client_version=NEW)
    assert script.stored.producer_epoch == 2**15 - 1, "the markers fence the old id"
    script.write_markers()
    assert script.answered == [ProducerReply(101, 0)]
    assert script.end(2**15 - 2, client_version=NEW) == ProducerReply(101, 0), "asked again"
    assert script.add(0, producer_id=101, client_version=NEW) is E.NONE


def test_a_late_end_never_ends_a_later_transaction() -> None:
    script = in_state(Status.COMPLETE_COMMIT, client_version=NEW)
    script.add(1, client_version=NEW)
    for commit in (True, False):
        code = refused(lambda commit=commit: script.end(0, commit=commit, client_version=NEW))
        assert code is E.PRODUCER_FENCED
    assert script.stored.status is Status.ONGOING


def test_who_ends_is_answered_when_the_markers_are_written() -> None:
    script = in_state(Status.ONGOING, client_version=NEW)
    assert script.end(0, client_version=NEW) is None
    assert (script.due, script.answered) == ([NAME], [])
    script.write_markers()
    assert script.answered == [ProducerReply(100, 1)]
    assert script.stored.status is Status.COMPLETE_COMMIT
    assert script.stored.partitions == {}


def test_markers_of_one_transaction_do_not_complete_the_next() -> None:
    script = in_state(Status.ONGOING)
    script.end(0)
    first = script.stored
    script.write_markers()
    script.add(0)
    script.end(0)
    script.step(lambda state, env: decisions.markers_are_written(state, NAME, first, env))
    assert script.stored.status is Status.PREPARE_COMMIT


def test_time_outs_count_from_the_beginning_also_after_a_restart() -> None:
    script = in_state(Status.ONGOING)
    assert script.deadlines[NAME] == 1_000 + 60_000
    script.now_ms += 10_000
    script.add(0)
    assert script.deadlines[NAME] == 61_000, "adding more partitions gives no more time"
    again = script.replayed()
    again.step(decisions.after_replay)
    assert again.deadlines[NAME] == 61_000
    script.end(0)
    assert script.deadlines[NAME] is None


@pytest.mark.parametrize("status", [Status.PREPARE_COMMIT, Status.PREPARE_ABORT])
def test_after_a_restart_what_was_decided_is_carried_out(status: Status) -> None:
    again = in_state(status).replayed()
    again.step(decisions.after_replay)
    assert again.due == [NAME]
    again.write_markers()
    assert again.stored.status.name == status.name.replace("PREPARE", "COMPLETE")


@pytest.mark.parametrize("status", list(Status))
def test_an_unused_id_is_forgotten_unless_it_has_something_to_do(status: Status) -> None:
    script = in_state(status)
    script.now_ms += TRANSACTION_SETTINGS.expiration_ms - 1
    script.step(lambda state, env: decisions.expire(state, NAME, env))
    assert NAME in script.state.transactions
    script.now_ms += 1
    script.step(lambda state, env: decisions.expire(state, NAME, env))
    is_busy = status in (Status.ONGOING, Status.PREPARE_COMMIT, Status.PREPARE_ABORT)
    assert (NAME in script.state.transactions) is is_busy
    assert (NAME in script.replayed().state.transactions) is is_busy


@pytest.mark.parametrize("status", list(Status))
def test_the_state_is_its_replay(status: Status) -> None:
    script = in_state(status, client_version=NEW)
    assert script.replayed().stored == script.stored


def test_verification_tells_which_partitions_are_in_the_transaction() -> None:
    script = in_state(Status.ONGOING)
    wanted = {"t": frozenset({0, 1})}
    answer = decisions.verify_partitions(script.state, NAME, ProducerEpoch(100, 0), wanted).reply
    assert answer == {("t", 0): E.NONE, ("t", 1): E.TRANSACTION_ABORTABLE}
