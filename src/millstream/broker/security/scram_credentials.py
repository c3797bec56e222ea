"""SCRAM credentials of users, as the cluster's image has them."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from millstream.cluster.client_entities import ClientEntities, ClientEntity
from millstream.security.sasl.scram import (
    HASHES,
    ITERATIONS_MIN,
    ScramCredential,
    decode_credential,
)

log = logging.getLogger(__name__)

# What Kafka's tools choose.
_USUAL_ITERATIONS: Final = ITERATIONS_MIN


class ScramCredentials:
    def __init__(self, entities: ClientEntities) -> None:
        self._entities = entities
        # By mechanism and user; filled when asked, and emptied when any entity changes.
        self._decoded: dict[tuple[str, str], ScramCredential | None] = {}
        self._usual_iterations: dict[str, int] = {}
        entities.listeners.append(self._entities_changed)

    def _entities_changed(self, changed: frozenset[ClientEntity]) -> None:
        self._decoded.clear()
        self._usual_iterations.clear()

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        key = (mechanism, user)
        text = self._entities.options_of(ClientEntity(user=user)).get(mechanism)
        if text is None:
            # Not remembered: strangers could fill the memory with names.
            return None
        if key not in self._decoded:
            self._decoded[key] = _decoded(mechanism, user, text)
        return self._decoded[key]

    def usual_iterations(self, mechanism: str) -> int:
        """Those that most users have, so that a user who does not exist looks like them."""
        if mechanism not in self._usual_iterations:
            found = [self.find(mechanism, user) for user, _ in self.users()]
            counts = Counter(one.iterations for one in found if one is not None)
            self._usual_iterations[mechanism] = max(
                counts or [_USUAL_ITERATIONS], key=lambda number: counts[number]
            )
        return self._usual_iterations[mechanism]

    def users(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Users with credentials, and these by mechanism, in Kafka's form."""
        for entity, options in self._entities.options.items():
            credentials = {name: options[name] for name in HASHES if name in options}
            if credentials and entity.client_id is None:
                assert entity.user is not None, entity
                yield entity.user, credentials


def _decoded(mechanism: str, user: str, text: str) -> ScramCredential | None:
    try:
        return decode_credential(text)
    except ValueError as error:
        log.error("user %r cannot log in by %s: its credential is %s", user, mechanism, error)
        return None
