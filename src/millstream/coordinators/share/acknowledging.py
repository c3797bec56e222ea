"""Who may acknowledge a record (INVALID_RECORD_STATE for all others), and what that changes.

`check_owner` decides who may. A client acknowledges ranges of offsets (`Acknowledgement`), each
with a type that leads to a state (`STATE_AFTER`). What they change counts when it is stored;
until then it is a `Change`.
"""

from collections.abc import Sequence
from dataclasses import field
from typing import Final, NamedTuple

from millstream.coordinators.share.in_flight import Delivery
from millstream.coordinators.share.state_batches import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    StateBatch,
    joined,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass

# Types of acknowledgements. A gap is an offset that the log does not have.
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
STATE_AFTER: Final = {
    GAP: ARCHIVED,
    ACCEPT: ACKNOWLEDGED,
    RELEASE: AVAILABLE,
    REJECT: ARCHIVED,
}


class Acknowledgement(NamedTuple):
    """What a client says about offsets; one type for all of them, or one for each."""

    first: int
    last: int
    types: Sequence[int]

    def type_of(self, offset: int) -> int:
        return self.types[0 if len(self.types) == 1 else offset - self.first]


@dataclass(slots=True)
class Change:
    """A change that is being stored: the deliveries that it changes, with their offsets."""

    parts: list[tuple[Delivery, int, int]] = field(default_factory=list)
    # The first offsets of parts that a consumer has rejected, if they get dead letters.
    rejected: set[int] = field(default_factory=set)

    def state_batches(self) -> list[StateBatch]:
        return joined(
            StateBatch(first, last, delivery.state, delivery.count)
            for delivery, first, last in self.parts
        )


def check_owner(one: Delivery, member_id: str, what: str) -> None:
    """Raises KafkaError if the member has not acquired it."""
    if one.before is not None:
        text = "An earlier acknowledgement of the record is still being stored."
    elif one.state != ACQUIRED:
        text = f"The {what} cannot be acknowledged. The {what} is not in the acquired state."
    elif one.member_id != member_id:
        text = f"Member is not the owner of {what} record"
    else:
        return
    raise KafkaError(KafkaCode.INVALID_RECORD_STATE, text)
