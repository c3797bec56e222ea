"""Records that begin with the id of a schema, decoded through a schema registry.

Runs in the threads that decode batches. One thread asks the registry at a time, and not again for
a while after it failed: pages are shown without it then. Memory is bounded: the schemas used last
are kept.
"""

import logging
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final

from millstream.clock import Clock
from millstream.registry.client import RegistryClient, RegistryRefused
from millstream.registry.formats.text import InvalidSchema

if TYPE_CHECKING:
    from millstream.registry.encoding import Codec

log = logging.getLogger(__name__)

_ANSWER_SECONDS_MAX: Final = 3.0
_CODECS_MAX: Final = 500
# A schema that is unknown now may be registered later, and a registry may come back.
_ASKED_AGAIN_AFTER_SECONDS: Final = 15.0
# Only the beginning of more would be shown.
_PAYLOAD_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Decoded:
    """JSON, and the schema that it was decoded with."""

    json: bytes
    # Avro, JSON Schema or Protobuf.
    kind: str
    schema_id: int


@dataclass(frozen=True, slots=True)
class _Missing:
    """Nothing decodes data with this id, at this time."""

    since: float


class Schemas:
    def __init__(self, url: str, clock: Clock) -> None:
        """Raises ValueError for what is not a URL."""
        self._client = RegistryClient(url, seconds_max=_ANSWER_SECONDS_MAX)
        self._clock = clock
        self._lock = Lock()
        # In the order of their last use.
        self._known: OrderedDict[int, Codec | _Missing] = OrderedDict()
        self._failed_at: float | None = None

    def decode(self, data: bytes) -> Decoded | None:
        """None for data that has no id of a schema, or is not data of that schema."""
        # Here, in a thread: the libraries for all formats take a while to load.
        from millstream.registry.encoding import split

        parts = split(data)
        if parts is None or len(data) > _PAYLOAD_BYTES_MAX:
            return None
        schema_id, payload = parts
        codec = self._codec(schema_id)
        if codec is None:
            return None
        try:
            return Decoded(codec.decode(payload), codec.kind, schema_id)
        except ValueError:
            return None

    def _codec(self, schema_id: int) -> "Codec | None":
        with self._lock:
            known = self._known.get(schema_id)
            if known is None or (isinstance(known, _Missing) and self._is_over(known.since)):
                known = self._ask(schema_id)
            if known is not None:
                self._known[schema_id] = known
                self._known.move_to_end(schema_id)
                if len(self._known) > _CODECS_MAX:
                    self._known.popitem(last=False)
            return None if isinstance(known, _Missing) else known

    def _ask(self, schema_id: int) -> "Codec | _Missing | None":
        """None while the registry does not answer."""
        from millstream.registry.encoding import load_codec

        if self._failed_at is not None and not self._is_over(self._failed_at):
            return None
        try:
            found = load_codec(self._client, schema_id)
        except InvalidSchema:
            return _Missing(self._clock.monotonic())
        except RegistryRefused as refused:
            if refused.is_about_schema:
                return _Missing(self._clock.monotonic())
            log.warning("console: records are shown without their schemas: %s", refused)
            self._failed_at = self._clock.monotonic()
            return None
        self._failed_at = None
        return found

    def _is_over(self, since: float) -> bool:
        return self._clock.monotonic() - since > _ASKED_AGAIN_AFTER_SECONDS
