"""What a decision gets, and what it returns: plain values.

A decision is a function `decide(state, request, env) -> Decision`. It may change what only
lives in memory (which requests wait). It returns as records what must survive a restart,
and `state.apply` alone changes that, now and in every later replay. It knows no loop, no
log and no clock.
"""

from collections.abc import Callable
from dataclasses import field
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from millstream.cluster.state import ClusterImage
from millstream.coordinators.codecs.changes import Change
from millstream.coordinators.groups.settings import GroupSettings
from millstream.lazy_dataclass import dataclass

R = TypeVar("R")
# A record as a value, and what a decision may know.
C = TypeVar("C")
E = TypeVar("E")


class Ticket:
    """One request that waits for its reply. Only its identity matters."""

    __slots__ = ()


@dataclass(slots=True)
class Env:
    """Everything a decision may know besides its state and its request.

    `now_ms` is the wall clock, for what is stored. `uptime_ms` never jumps, for deadlines.
    `topics_version` changes whenever a topic is created, deleted or grows.
    """

    now_ms: int
    uptime_ms: int
    image: ClusterImage
    topics_version: int
    settings: GroupSettings
    new_uuid: Callable[[], UUID]
    ticket: Ticket


class DeadlineKind(Enum):
    # Classic groups: session timeout, end of the join phase, end of the sync phase.
    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"
    # Consumer groups: session timeout, and the time for revoking partitions. Its classic
    # members also have to join and to sync in time.
    MEMBER_SESSION = "member session"
    MEMBER_REVOKE = "member revoke"
    MEMBER_JOIN = "member join"
    MEMBER_SYNC = "member sync"
    # Streams groups: the first target, for which a new group waits.
    FIRST_TARGET = "first target"
    # Transactions: the timeout that the producer set.
    TRANSACTION = "transaction"


# Those that end a member because it has not been heard of in time.
ENDS_A_MEMBER: Final = frozenset(
    {
        DeadlineKind.SESSION,
        DeadlineKind.MEMBER_SESSION,
        DeadlineKind.MEMBER_REVOKE,
        DeadlineKind.MEMBER_JOIN,
        DeadlineKind.MEMBER_SYNC,
    }
)


class DeadlineKey(NamedTuple):
    kind: DeadlineKind
    group_id: str
    member_id: str


@dataclass(slots=True)
class Deadline:
    """Call back at `at_ms` of the uptime, instead of any earlier deadline; None cancels it."""

    key: DeadlineKey
    at_ms: int | None
    # Keep an earlier deadline that is already set.
    is_new_only: bool = False


@dataclass(frozen=True, slots=True)
class ProducerEpoch:
    """The producer that writes in a transaction."""

    producer_id: int
    epoch: int


@dataclass(slots=True)
class DecisionOf(Generic[R, C, E]):
    """`reply` is for the caller; None means that the ticket waits.

    `replies` are for other waiting requests; a KafkaError among them is raised to its waiter.
    `then` is decided at once after the records have been applied, and its reply counts.
    `transaction` makes the records count only once that producer's transaction is committed.
    `when_committed` names what the owner of the shard acts upon once the records are committed.
    """

    reply: R | None = None
    records: list[C] = field(default_factory=list)
    replies: list[tuple[Ticket, object]] = field(default_factory=list)
    deadlines: list[Deadline] = field(default_factory=list)
    then: "Callable[[E], DecisionOf[R, C, E]] | None" = None
    transaction: ProducerEpoch | None = None
    when_committed: list[str] = field(default_factory=list)


class Decision(DecisionOf[R, Change, Env], Generic[R]):
    """A decision of the group coordinator."""

    __slots__ = ()
