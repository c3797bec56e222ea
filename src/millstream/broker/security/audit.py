"""The audit log: who was denied what, and who changed what, under `millstream.audit`.

A client that is denied asks again at once, so the same denial is written once per interval, with
the number of those in between. Values are never written: they may be secrets.
"""

import logging
from collections.abc import Callable
from typing import Final

from millstream.lazy_dataclass import dataclass
from millstream.security.acl import Operation, ResourceType

log = logging.getLogger("millstream.audit")

INTERVAL_SECONDS: Final = 10.0
# Beyond this many different denials, the oldest are forgotten: they are written again.
_KEPT_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Denial:
    principal: str
    host: str
    operation: Operation
    resource_type: ResourceType
    name: str


class AuditLog:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        # When each denial was last written, and how often it was not since; oldest first.
        self._written: dict[Denial, tuple[float, int]] = {}

    def denied(self, denial: Denial) -> None:
        now = self._monotonic()
        at, unwritten = self._written.get(denial, (-INTERVAL_SECONDS, 0))
        if now - at < INTERVAL_SECONDS:
            self._written[denial] = (at, unwritten + 1)
            return
        self._written.pop(denial, None)
        if len(self._written) >= _KEPT_MAX:
            del self._written[next(iter(self._written))]
        self._written[denial] = (now, 0)
        log.warning(
            "denied %s from %s: %s on %s %.300s%s",
            _one_line(denial.principal),
            denial.host,
            denial.operation.name,
            denial.resource_type.name,
            repr(denial.name),
            f" ({unwritten} more since)" if unwritten else "",
        )

    def changed(self, principal: str, host: str, what: str) -> None:
        log.info("%s from %s: %.1000s", _one_line(principal), host, _one_line(what))


def _one_line(text: str) -> str:
    """Nobody's name can look like another line of the log."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
