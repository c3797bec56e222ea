"""One shard of the coordinator: a partition of the internal topic, and its state.

    request -> decide -> append -> apply -> reply, once everything the group has in the
    log is committed

A reply, also one that only reads, leaves when the last record applied to its group is
committed; so nobody is shown what a crash can take back. When an append fails there is no
undo: the state is dropped, whoever waits is told NOT_COORDINATOR, and the log is replayed.

The log is reached through a `Port` only. Decisions are made elsewhere.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, Protocol, TypeVar, cast

from millstream.coordinators.codecs.changes import Change
from millstream.coordinators.codecs.table import KeyValue, decode, encode
from millstream.coordinators.deadlines import Deadlines
from millstream.coordinators.decision import Deadline, DeadlineKey, Decision, Env, Ticket
from millstream.coordinators.requests import deadline_is_over, deadlines_after_replay
from millstream.coordinators.state import ShardState
from millstream.errors import KafkaCode, KafkaError

log = logging.getLogger(__name__)

R = TypeVar("R")
Decide = Callable[[ShardState, Env], Decision[R]]

# A decision is one batch, written whole or not at all; only a huge group needs several.
BATCH_BYTES_MAX: Final = 900_000
_RECORD_OVERHEAD_BYTES: Final = 32


class Port(Protocol):
    """The partition under a shard: of this node, or of another one over a link."""

    def append(self, records: Sequence[KeyValue]) -> int:
        """Write one batch; the offset after it. Raises KafkaError, and then wrote nothing."""
        ...

    def wait_committed(self, next_offset: int) -> "asyncio.Future[None] | None":
        """What a reply has to wait for; None when everything below is committed."""
        ...

    def read(self, offset: int) -> tuple[list[KeyValue], int] | None:
        """Some records from `offset` on, and where to go on; None at the end."""
        ...

    @property
    def start_offset(self) -> int: ...


class ShardStatus(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class Shard:
    def __init__(self, name: str, port: Port, env: Callable[[Ticket], Env]) -> None:
        self.name = name
        self.status = ShardStatus.LOADING
        self.state = ShardState()
        self.deadlines = Deadlines()
        self._port = port
        self._env = env
        self._waiting: dict[Ticket, asyncio.Future[object]] = {}
        # The end of the last record of each group, as long as it may be uncommitted.
        self._group_ends: dict[str, int] = {}
        self._end = 0
        self._on_failure: Callable[[Shard], None] = lambda shard: None

    # -- replay -----------------------------------------------------------------------

    async def load(self) -> None:
        """Replay the log, in steps that let the loop serve others in between."""
        state = ShardState()
        offset = self._port.start_offset
        count = 0
        while (step := self._port.read(offset)) is not None:
            records, offset = step
            for key, value in records:
                apply_record(state, key, value)
            count += len(records)
            await asyncio.sleep(0)
        if self.status is ShardStatus.CLOSED:
            return
        self.state = state
        self.status = ShardStatus.ACTIVE
        self._end = offset
        # Read back, but who knows whether it was ever synced: until it is, nobody sees it.
        self._group_ends = dict.fromkeys(state.groups, offset)
        self._set_deadlines(deadlines_after_replay(state, self._env(Ticket())))
        if count:
            log.info("loaded %s: %d records, %d groups", self.name, count, len(state.groups))

    def on_failure(self, call: Callable[["Shard"], None]) -> None:
        self._on_failure = call

    def drop(self, status: ShardStatus, reason: str) -> None:
        """Forget everything; whoever waits has to look for the coordinator again."""
        log.warning("dropping %s: %s", self.name, reason)
        self.status = status
        self.state = ShardState()
        self.deadlines = Deadlines()
        self._group_ends.clear()
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
        match self.status:
            case ShardStatus.LOADING:
                raise KafkaError(KafkaCode.COORDINATOR_LOAD_IN_PROGRESS)
            case ShardStatus.CLOSED:
                raise KafkaError(KafkaCode.NOT_COORDINATOR)
            case ShardStatus.ACTIVE:
                return

    def submit(self, group_id: str, decide: "Decide[R]") -> "R | asyncio.Future[R]":
        """The reply, or what will hold it. Raises KafkaError where the answer is one."""
        self.require_active()
        ticket = Ticket()
        try:
            reply = self._run(group_id, decide, ticket)
        except KafkaError as error:
            reply = error
        if reply is None:
            waiting: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            self._waiting[ticket] = waiting
            return cast("asyncio.Future[R]", waiting)
        wait = self._wait(group_id)
        if wait is not None:
            later: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            self._answer_after(wait, later, reply)
            return cast("asyncio.Future[R]", later)
        if isinstance(reply, KafkaError):
            raise reply
        return cast("R", reply)

    def run(self, group_id: str, decide: "Decide[None]") -> None:
        """A decision that nobody asked for. What it answers goes to those who wait."""
        if self.status is not ShardStatus.ACTIVE:
            return
        try:
            self._run(group_id, decide, Ticket())
        except KafkaError as error:
            log.warning("%s group %s: %s", self.name, group_id, error)

    def deadlines_are_over(self, uptime_ms: int) -> None:
        for key in self.deadlines.due(uptime_ms):
            self._deadline_is_over(key)
            if self.status is not ShardStatus.ACTIVE:
                return

    def _deadline_is_over(self, key: DeadlineKey) -> None:
        self.run(key.group_id, lambda state, env: deadline_is_over(state, key, env))

    def _run(self, group_id: str, decide: "Decide[R]", ticket: Ticket) -> object:
        """Decide, append, apply; the reply for the ticket, None while it has to wait."""
        env = self._env(ticket)
        decision = decide(self.state, env)
        own: object = None
        while True:
            self._append(group_id, decision.records)
            self._set_deadlines(decision.deadlines)
            for waiter, reply in decision.replies:
                if waiter is ticket:
                    own = reply
                else:
                    self._deliver(group_id, waiter, reply)
            if decision.reply is not None:
                own = decision.reply
            if decision.then is None:
                return own
            decision = decision.then(env)

    def _append(self, group_id: str, changes: Sequence[Change]) -> None:
        if not changes:
            return
        try:
            for batch in split_batches([encode(change) for change in changes]):
                self._end = self._port.append(batch)
        except KafkaError as error:
            self.drop(ShardStatus.LOADING, f"an append failed: {error}")
            self._on_failure(self)
            raise KafkaError(KafkaCode.NOT_COORDINATOR, str(error)) from error
        for change in changes:
            self.state.apply(change)
        self._group_ends[group_id] = self._end

    def _set_deadlines(self, deadlines: Iterable[Deadline]) -> None:
        for deadline in deadlines:
            self.deadlines.set(deadline)

    # -- replies ----------------------------------------------------------------------

    def wait_all(self) -> "asyncio.Future[None] | None":
        """What a reply about all groups has to wait for."""
        return self._port.wait_committed(self._end)

    def _wait(self, group_id: str) -> "asyncio.Future[None] | None":
        end = self._group_ends.get(group_id)
        if end is None:
            return None
        wait = self._port.wait_committed(end)
        if wait is None:
            del self._group_ends[group_id]
        return wait

    def _deliver(self, group_id: str, ticket: Ticket, reply: object) -> None:
        future = self._waiting.pop(ticket, None)
        if future is None or future.done():
            return
        wait = self._wait(group_id)
        if wait is None:
            settle(future, reply)
        else:
            self._answer_after(wait, future, reply)

    def _answer_after(
        self, wait: "asyncio.Future[None]", future: "asyncio.Future[object]", reply: object
    ) -> None:
        def answer(done: "asyncio.Future[None]") -> None:
            if done.cancelled() or done.exception() is not None:
                # What was decided may be lost. The reply is withheld, and so is the state.
                settle(future, KafkaError(KafkaCode.NOT_COORDINATOR))
                if self.status is ShardStatus.ACTIVE:
                    self.drop(ShardStatus.CLOSED, "the log cannot be synced")
            else:
                settle(future, reply)

        wait.add_done_callback(answer)


def apply_record(state: ShardState, key: bytes, value: bytes | None) -> None:
    try:
        change = decode(key, value)
    except ValueError as error:
        # One record that nobody can read must not take the other groups with it.
        log.warning("skipping a record that cannot be read: %s (key %s)", error, key.hex())
        return
    if change is not None:
        state.apply(change)


def split_batches(records: Sequence[KeyValue]) -> Iterator[list[KeyValue]]:
    """One batch, unless it would be more than the topic takes."""
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
        # The client may have gone; then nobody asks, and that is no news.
        future.exception()
    else:
        future.set_result(reply)
