"""What a replica serves in its present state, and when that was last decided.

Whether a request may be served depends on a topic's options, on the replica's role, on its
disk and on permissions. `broker.requests.admission` decides all of it once, and the decision
holds until the node's generation changes. Everything that an admission depends on bumps the
generation in the same step in which it changes, so "is it current?" compares two integers.

This module has the partition's part: `Standing`, and the terms under which it accepts a write.
"""

from collections.abc import Callable

from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass
from millstream.records.validation import BatchRules


class Generation:
    """One per node. It only grows."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0

    def bump(self) -> None:
        """Make all earlier decisions invalid."""
        self.number += 1


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why something is not served. Each use raises a new error made from it."""

    code: KafkaCode
    message: str | None = None

    def error(self) -> KafkaError:
        return KafkaError(self.code, self.message)


@dataclass(frozen=True, slots=True)
class Standing:
    """What a replica serves in its present role and with its disk; None means that it is
    served.

    `write` is for acks 0 and 1, `committed_write` for acks all. `read` is for requests that
    need the leader, `near_read` for those that may read from any replica (KIP-392).
    """

    write: Refusal | None = None
    committed_write: Refusal | None = None
    read: Refusal | None = None
    near_read: Refusal | None = None
    # Checked at every write that is not committed: time alone ends a lease. None if no other
    # node could lead.
    has_lease: Callable[[], bool] | None = None


@dataclass(frozen=True, slots=True)
class WriteTerms:
    """The terms under which a partition accepts batches; valid for one generation."""

    generation: int
    refusal: Refusal | None
    has_lease: Callable[[], bool] | None
    rules: BatchRules
    # Is the answer known as soon as the batches are written?
    answers_at_once: bool
