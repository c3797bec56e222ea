"""Whether SCRAM credentials may be changed as a client asks.

Refused: a user without a name, an unknown mechanism, too few or too many iterations (see `scram`),
no salt, a salted password of the wrong length, deleting what is not there, and changing a
credential twice. Then nothing is changed for that user.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.errors import KafkaCode, KafkaError
from millstream.security.sasl.scram import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    credential_of,
    encode_credential,
)

# Kafka's numbers.
MECHANISM_NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_MECHANISMS: Final = {number: name for name, number in MECHANISM_NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class Deletion:
    user: str
    mechanism_number: int


@dataclass(frozen=True, slots=True)
class Upsertion:
    """A new credential, or another one for a user who has one."""

    user: str
    mechanism_number: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"Upsertion({self.user!r}, {self.mechanism_number})"


Change = Deletion | Upsertion


def decide_changes(
    changes: Sequence[Change], known: Mapping[str, Collection[str]]
) -> dict[str, dict[str, str | None] | KafkaError]:
    """For each user, the new credentials by mechanism (None for a deleted one) or the error, after
    which nothing is changed for that user. `known` are the mechanisms that users have."""
    counts = Counter((change.user, change.mechanism_number) for change in changes)
    decided: dict[str, dict[str, str | None] | KafkaError] = {}
    for change in changes:
        present = decided.setdefault(change.user, {})
        if isinstance(present, KafkaError):
            continue
        try:
            if counts[change.user, change.mechanism_number] > 1:
                raise KafkaError(
                    KafkaCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            mechanism = _mechanism(change)
            if isinstance(change, Deletion):
                _check_exists(mechanism, known.get(change.user, ()))
                present[mechanism] = None
            else:
                present[mechanism] = _upserted(change)
        except KafkaError as error:
            decided[change.user] = error.kept()
    return decided


def _mechanism(change: Change) -> str:
    if not change.user:
        raise KafkaError(KafkaCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = _MECHANISMS.get(change.mechanism_number)
    if mechanism is None:
        raise KafkaError(KafkaCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return mechanism


def _check_exists(mechanism: str, known: Collection[str]) -> None:
    if mechanism not in known:
        raise KafkaError(
            KafkaCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        )


def _upserted(change: Upsertion) -> str:
    mechanism = _MECHANISMS[change.mechanism_number]
    if change.iterations < ITERATIONS_MIN:
        raise _unacceptable(f"Too few iterations: at least {ITERATIONS_MIN}")
    if change.iterations > ITERATIONS_MAX:
        raise _unacceptable(f"Too many iterations: at most {ITERATIONS_MAX}")
    if not change.salt:
        raise _unacceptable("The salt must not be empty")
    if len(change.salted_password) != hashlib.new(HASHES[mechanism]).digest_size:
        raise _unacceptable(f"The salted password has the wrong length for {mechanism}")
    credential = credential_of(
        mechanism, change.salted_password, salt=change.salt, iterations=change.iterations
    )
    return encode_credential(credential)


def _unacceptable(text: str) -> KafkaError:
    return KafkaError(KafkaCode.UNACCEPTABLE_CREDENTIAL, text)
