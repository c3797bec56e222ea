"""One shard of the coordinator: a partition of the internal topic, and its state.

    request -> decide -> append -> apply -> reply, once everything about the same name
    is committed

A name is a group or a transactional id; the `Machine` of a shard says which. A reply, even
one that only reads, is sent when the last record applied to its name is committed. So no
client sees what a crash can remove. If an append fails there is no undo: the state is
dropped, waiting requests get NOT_COORDINATOR, and the log is replayed.

The shard reaches the log through a `Port` only. Decisions are made elsewhere.
Until the log is replayed, requests get COORDINATOR_LOAD_IN_PROGRESS (`require_active`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar, cast

from millstream.coordinators.codecs.table import KeyValue
from millstream.coordinators.deadlines import Deadlines
from millstream.coordinators.decision import (
    ENDS_A_MEMBER,
    Deadline,
    DeadlineKey,
    DecisionOf,
    ProducerEpoch,
    Ticket,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass
from millstream.records.batch import HEADER_BYTES
from millstream.records.control import ControlType, EndTransactionMarker

log = logging.getLogger(__name__)

R = TypeVar("R")
C = TypeVar("C")
E = TypeVar("E")
S = TypeVar("S")
Decide = Callable[[S, E], DecisionOf[R, C, E]]

# A decision is one batch, written as a whole or not at all; only a huge group needs several.
BATCH_BYTES_MAX: Final = 900_000
_RECORD_OVERHEAD_BYTES: Final = 32
_BATCH_OVERHEAD_BYTES: Final = HEADER_BYTES + _RECORD_OVERHEAD_BYTES
# When a deadline is tried again that could not be acted upon: Kafka's backoff.
PUT_OFF_MS: Final = 500


@dataclass(slots=True)
class LoggedBatch:
    """A batch as the log has it: records, or the end of a transaction."""

    records: list[KeyValue]
    # The transaction that the records are part of, or that the marker ends.
    producer_id: int = -1
    marker: ControlType | None = None


class Port(Protocol):
    """The partition under a shard."""

    def append(self, records: Sequence[KeyValue], transaction: ProducerEpoch | None) -> int:
        """Write one batch; the offset after it. Raises KafkaError if nothing was written."""
        ...

    def append_marker(self, marker: EndTransactionMarker, producer: ProducerEpoch) -> int | None:
        """End a transaction; the offset after the marker, None if the marker already exists."""
        ...

    def wait_committed(self, next_offset: int) -> "asyncio.Future[None] | None":
        """What a reply has to wait for; None if everything below is committed."""
        ...

    def read(self, offset: int) -> tuple[list[LoggedBatch], int] | None:
        """Some batches from `offset` on, and the next offset to read; None at the end."""
        ...

    @property
    def start_offset(self) -> int: ...

    @property
    def batch_bytes_max(self) -> int: ...

    @property
    def has_lease(self) -> bool:
        """Whether no other node can have taken over because this one is silent."""
        ...


@dataclass(frozen=True, slots=True)
class Machine(Generic[S, C, E]):
    """What makes a shard one of groups or one of transactions.

    Only `apply`, `apply_pending` and `end_transaction` change what must survive a restart.
    A pending record counts once its producer's transaction is committed.
    """

    new_state: Callable[[], S]
    encode: Callable[[C], KeyValue]
    decode: Callable[[bytes, bytes | None], C | None]
    apply: Callable[[S, C], None]
    apply_pending: Callable[[S, C, int], None]
    # (state, producer id, is it a commit): the names that this concerns.
    end_transaction: Callable[[S, int, bool], Iterable[str]]
    # The groups, or transactional ids: each has its own end in the log.
    names: Callable[[S], Iterable[str]]
    deadline_is_over: Callable[[S, DeadlineKey, E], DecisionOf[None, C, E]]
    after_replay: Callable[[S, E], DecisionOf[None, C, E]]


class ShardStatus(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


# Python 3.11 looks up an enum member in Python code, which is too slow for every request.
_ACTIVE: Final = ShardStatus.ACTIVE


class Shard(Generic[S, C, E]):
    def __init__(
        self, name: str, machine: Machine[S, C, E], port: Port, env: Callable[[Ticket], E]
    ) -> None:
        self.name = name
        self.status = ShardStatus.LOADING
        self.state = machine.new_state()
        self.deadlines = Deadlines()
        self._machine = machine
        self._port = port
        self._env = env
        self._waiting: dict[Ticket, asyncio.Future[object]] = {}
        # The end of the last record of each name, while it may be uncommitted.
        self._ends: dict[str, int] = {}
        self._end = 0
        self._due_when_committed: list[str] = []
        self._on_failure: Callable[[Shard[S, C, E]], None] = lambda shard: None
        self._on_committed: Callable[[Shard[S, C, E], str], None] = lambda shard, name: None

    # -- replay -----------------------------------------------------------------------

    async def load(self) -> None:
        """Replay the log, in steps that let the loop serve other requests in between."""
        state = self._machine.new_state()
        offset = self._port.start_offset
        count = 0
        while (step := self._port.read(offset)) is not None:
            batches, offset = step
            for batch in batches:
                self._replay(state, batch)
                count += len(batch.records)
            await asyncio.sleep(0)
        if self.status is not ShardStatus.LOADING:
            # Closed in the meantime; or another load has finished, and the shard is in use since.
            return
        self.state = state
        self.status = ShardStatus.ACTIVE
        self._end = offset
        # It was read back, but may never have been synced: until it is, no client sees it.
        names = list(self._machine.names(state))
        self._ends = dict.fromkeys(names, offset)
        decision = self._machine.after_replay(state, self._env(Ticket()))
        self._set_deadlines(decision.deadlines)
        self._due_when_committed += decision.when_committed
        self._act_when_committed()
        if count:
            log.info("loaded %s: %d records, %d names", self.name, count, len(names))

    def _replay(self, state: S, batch: LoggedBatch) -> None:
        machine = self._machine
        if batch.marker is not None:
            machine.end_transaction(state, batch.producer_id, batch.marker is ControlType.COMMIT)
            return
        for key, value in batch.records:
            try:
                change = machine.decode(key, value)
            except ValueError as error:
                # One unreadable record must not make the others unavailable.
                log.warning("skipping a record that cannot be read: %s (key %s)", error, key.hex())
                continue
            if change is None:
                continue
            if batch.producer_id >= 0:
                machine.apply_pending(state, change, batch.producer_id)
            else:
                machine.apply(state, change)

    def on_failure(self, call: "Callable[[Shard[S, C, E]], None]") -> None:
        self._on_failure = call

    def on_committed(self, call: "Callable[[Shard[S, C, E], str], None]") -> None:
        """Register the callback for what a decision names in `when_committed`."""
        self._on_committed = call

    def drop(self, status: ShardStatus, reason: str) -> None:
        """Forget everything; waiting clients have to look for the coordinator again."""
        log.warning("dropping %s: %s", self.name, reason)
        self.status = status
        self.state = self._machine.new_state()
        self.deadlines = Deadlines()
        self._ends.clear()
        self._due_when_committed.clear()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            settle(future, KafkaError(KafkaCode.NOT_COORDINATOR))

    def close(self) -> None:
        if self.status is not ShardStatus.CLOSED:
            self.status = ShardStatus.CLOSED
            waiting, self._waiting = self._waiting, {}
            for future in waiting.values():
                settle(future, KafkaError(KafkaCode.NOT_COORDINATOR))

    # -- requests ---------------------------------------------------------------------

    def require_active(self) -> None:
        if self.status is _ACTIVE:
            return
        if self.status is ShardStatus.LOADING:
            raise KafkaError(KafkaCode.COORDINATOR_LOAD_IN_PROGRESS)
        raise KafkaError(KafkaCode.NOT_COORDINATOR)

    def listed_state(self) -> S:
        """For a list of what all shards have. Raises KafkaError while this one is loaded: what it
        has would be missing. One that another node has taken over is listed there."""
        if self.status is ShardStatus.LOADING:
            raise KafkaError(KafkaCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self.state

    def submit(self, name: str, decide: "Decide[S, E, R, C]") -> "R | asyncio.Future[R]":
        """The reply, or a future of it. Raises KafkaError if the answer is an error."""
        self.require_active()
        ticket = Ticket()
        try:
            reply = self._run(name, decide, ticket)
        except KafkaError as error:
            reply = error.kept()
        if reply is None:
            waiting: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            self._waiting[ticket] = waiting
            self._act_when_committed()
            return cast("asyncio.Future[R]", waiting)
        wait = self._wait(name)
        self._act_when_committed()
        if wait is not None:
            later: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            self._answer_after(wait, later, reply)
            return cast("asyncio.Future[R]", later)
        if isinstance(reply, KafkaError):
            try:
                raise reply
            finally:
                del reply
        return cast("R", reply)

    def submit_internal(self, name: str, decide: "Decide[S, E, None, C]") -> bool:
        """Make a decision that no client asked for. Its replies go to waiting requests.

        False if it could not be written, as too few replicas are in sync: nobody but the caller
        can try again. A shard that is not active makes no decision; its replay shows what is left
        to do."""
        if self.status is not ShardStatus.ACTIVE:
            return True
        is_written = True
        try:
            self._run(name, decide, Ticket())
        except KafkaError as error:
            is_written = error.code is not KafkaCode.COORDINATOR_NOT_AVAILABLE
            # Of what is tried again and again there would be too many lines.
            level = logging.WARNING if is_written else logging.DEBUG
            log.log(level, "%s %s: %s", self.name, name, error)
        self._act_when_committed()
        return is_written

    def end_transaction(self, marker: EndTransactionMarker, producer: ProducerEpoch) -> int | None:
        """Write a producer's marker, and let its pending records count or disappear.

        The offset after it; None if the marker already exists. Raises KafkaError."""
        self.require_active()
        try:
            end = self._port.append_marker(marker, producer)
        except KafkaError as error:
            if error.code is KafkaCode.KAFKA_STORAGE_ERROR:
                self._fail(error)
            raise
        if end is None:
            return None
        self._end = end
        is_commit = marker.type is ControlType.COMMIT
        for name in self._machine.end_transaction(self.state, producer.producer_id, is_commit):
            self._ends[name] = end
        return end

    def deadlines_are_over(self, uptime_ms: int) -> None:
        for key in self.deadlines.due(uptime_ms):
            is_done = self._may_act_on(key) and self._deadline_is_over(key)
            if self.status is not ShardStatus.ACTIVE:
                return
            if not is_done:
                self.deadlines.set(Deadline(key, uptime_ms + PUT_OFF_MS, is_new_only=True))

    def _may_act_on(self, key: DeadlineKey) -> bool:
        """Without the lease, a member that is silent here may be in touch with a successor. A
        record of its end would not be committed, but would count if this node were elected again
        with it still in the log."""
        return key.kind not in ENDS_A_MEMBER or self._port.has_lease

    def _deadline_is_over(self, key: DeadlineKey) -> bool:
        """Whether that is settled; otherwise it has to be tried again."""
        decide = self._machine.deadline_is_over
        return self.submit_internal(key.group_id, lambda state, env: decide(state, key, env))

    def _run(self, name: str, decide: "Decide[S, E, R, C]", ticket: Ticket) -> object:
        """Decide, append, apply; the reply for the ticket, None while it has to wait."""
        env = self._env(ticket)
        decision = decide(self.state, env)
        own: object = None
        while True:
            try:
                self._append(name, decision.records, decision.transaction)
            except KafkaError as error:
                # The decision has taken these requests from the state: nobody else answers them.
                for waiter, _ in decision.replies:
                    self._deliver(name, waiter, error)
                raise
            self._set_deadlines(decision.deadlines)
            self._due_when_committed += decision.when_committed
            for waiter, reply in decision.replies:
                if waiter is ticket:
                    own = reply
                else:
                    self._deliver(name, waiter, reply)
            if decision.reply is not None:
                own = decision.reply
            if decision.then is None:
                return own
            decision = decision.then(env)

    def _append(self, name: str, changes: Sequence[C], transaction: ProducerEpoch | None) -> None:
        if not changes:
            return
        machine = self._machine
        try:
            encoded = [machine.encode(change) for change in changes]
        except ValueError as error:
            # For example, a name is longer than a record can hold. Nothing has happened yet.
            raise KafkaError(KafkaCode.INVALID_REQUEST, str(error)) from error
        batches = list(split_batches(encoded)) if len(encoded) > 1 else [encoded]
        if len(batches) > 1:
            self._check_sizes(batches)
        is_begun = False
        try:
            for batch in batches:
                self._end = self._port.append(batch, transaction)
                is_begun = True
        except KafkaError as error:
            if error.code is KafkaCode.MESSAGE_TOO_LARGE and not is_begun:
                # The request is at fault, not the shard, and nothing was written.
                raise KafkaError(KafkaCode.INVALID_REQUEST, str(error)) from error
            if error.code is KafkaCode.INVALID_PRODUCER_EPOCH:
                # The producer is outdated, not the shard, and nothing was written.
                raise
            if error.code is KafkaCode.NOT_ENOUGH_REPLICAS:
                # Nothing was written; the client may retry.
                raise KafkaError(KafkaCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
            self._fail(error)
            raise KafkaError(KafkaCode.NOT_COORDINATOR, str(error)) from error
        for change in changes:
            if transaction is None:
                machine.apply(self.state, change)
            else:
                machine.apply_pending(self.state, change, transaction.producer_id)
        self._ends[name] = self._end

    def _check_sizes(self, batches: Sequence[Sequence[KeyValue]]) -> None:
        """Raises KafkaError where one of several batches could not be written after others. Only
        one with a single record can be that large."""
        for batch in batches:
            if len(batch) == 1:
                [(key, value)] = batch
                size_bytes = len(key) + len(value or b"") + _BATCH_OVERHEAD_BYTES
                if size_bytes > self._port.batch_bytes_max:
                    text = f"a record of {size_bytes} bytes"
                    raise KafkaError(KafkaCode.INVALID_REQUEST, text)

    def _fail(self, error: KafkaError) -> None:
        self.drop(ShardStatus.LOADING, f"an append failed: {error}")
        self._on_failure(self)

    def _act_when_committed(self) -> None:
        """Pass on what decisions left to be done, in another loop iteration or after the sync."""
        if not self._due_when_committed:
            return
        due, self._due_when_committed = self._due_when_committed, []
        wait = self._port.wait_committed(self._end)
        if wait is None:
            self._act(due)
        else:
            wait.add_done_callback(
                lambda done: self._not_committed() if _failed(done) else self._act(due)
            )

    def _act(self, names: Sequence[str]) -> None:
        for name in names:
            if self.status is ShardStatus.ACTIVE:
                self._on_committed(self, name)

    def _set_deadlines(self, deadlines: Iterable[Deadline]) -> None:
        for deadline in deadlines:
            self.deadlines.set(deadline)

    # -- replies ----------------------------------------------------------------------

    def wait_all(self) -> "asyncio.Future[None] | None":
        """What a reply about all names has to wait for."""
        return self._port.wait_committed(self._end)

    def _wait(self, name: str) -> "asyncio.Future[None] | None":
        end = self._ends.get(name)
        if end is None:
            return None
        wait = self._port.wait_committed(end)
        if wait is None:
            del self._ends[name]
        return wait

    def _deliver(self, name: str, ticket: Ticket, reply: object) -> None:
        future = self._waiting.pop(ticket, None)
        if future is None or future.done():
            return
        wait = self._wait(name)
        if wait is None:
            settle(future, reply)
        else:
            self._answer_after(wait, future, reply)

    def _answer_after(
        self, wait: "asyncio.Future[None]", future: "asyncio.Future[object]", reply: object
    ) -> None:
        def answer(done: "asyncio.Future[None]") -> None:
            if _failed(done):
                # The decision may be lost. The reply is withheld, and so is the state.
                settle(future, KafkaError(KafkaCode.NOT_COORDINATOR))
                self._not_committed()
            else:
                settle(future, reply)

        wait.add_done_callback(answer)

    def _not_committed(self) -> None:
        """A decision may be lost, or may yet be committed: the log will show it. Until it is read
        again, nothing acts upon the decision, not even on one that no client waits for."""
        if self.status is ShardStatus.ACTIVE:
            self.drop(ShardStatus.LOADING, "a decision was not committed")
            self._on_failure(self)


def _failed(done: "asyncio.Future[None]") -> bool:
    return done.cancelled() or done.exception() is not None


def split_batches(records: Sequence[KeyValue]) -> Iterator[list[KeyValue]]:
    """One batch, unless it would exceed the topic's limit."""
    batch: list[KeyValue] = []
    size_bytes = 0
    for key, value in records:
        record_bytes = len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
        if batch and size_bytes + record_bytes > BATCH_BYTES_MAX:
            yield batch
            batch, size_bytes = [], 0
        batch.append((key, value))
        size_bytes += record_bytes
    if batch:
        yield batch


def settle(future: "asyncio.Future[object]", reply: object) -> None:
    if future.done():
        return
    if isinstance(reply, KafkaError):
        future.set_exception(reply)
        # If the client is gone, an unread exception is no news.
        future.exception()
    else:
        future.set_result(reply)
