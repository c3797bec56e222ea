"""The audit log: who was denied what, and who changed what, under `millstream.audit`.

A client that is denied asks again at once, so the same denial is written once per interval, with
the number of those in between. One that invents names must not fill the disk: of its denials a
hundred per interval are written. Values are never written: they may be secrets.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from millstream.lazy_dataclass import dataclass
from millstream.security.acl import Operation, ResourceType

log = logging.getLogger("millstream.audit")

INTERVAL_SECONDS: Final = 10.0
# Of one principal at one address.
LINES_PER_INTERVAL: Final = 100
# Beyond this many different denials, the oldest are forgotten: they are written again.
_KEPT_MAX: Final = 10_000
# A name may have 32 KB. Names that begin with the same characters count as one.
_NAME_LENGTH_MAX: Final = 250


@dataclass(frozen=True, slots=True)
class Denial:
    principal: str
    host: str
    operation: Operation
    resource_type: ResourceType
    name: str


@dataclass(slots=True)
class _Lines:
    """What was written of one client in the interval that began then, and what was not."""

    since: float
    written: int = 0
    left_out: int = 0


class AuditLog:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        # When each denial was last written, and how often it was not since; oldest first.
        self._written: dict[Denial, tuple[float, int]] = {}
        # By principal and host, oldest first.
        self._lines: dict[tuple[str, str], _Lines] = {}

    def denied(self, denial: Denial) -> None:
        if len(denial.name) > _NAME_LENGTH_MAX:
            denial = replace(denial, name=denial.name[:_NAME_LENGTH_MAX])
        now = self._monotonic()
        at, unwritten = self._written.get(denial, (-INTERVAL_SECONDS, 0))
        if now - at < INTERVAL_SECONDS:
            self._written[denial] = (at, unwritten + 1)
            return
        if not self._has_room(denial, now):
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

    def _has_room(self, denial: Denial, now: float) -> bool:
        """May another line be written about this client?"""
        client = denial.principal, denial.host
        lines = self._lines.get(client)
        if lines is None or now - lines.since >= INTERVAL_SECONDS:
            if lines is not None:
                del self._lines[client]
                _tell_left_out(denial, lines.left_out)
            elif len(self._lines) >= _KEPT_MAX:
                del self._lines[next(iter(self._lines))]
            lines = self._lines[client] = _Lines(now)
        if lines.written >= LINES_PER_INTERVAL:
            lines.left_out += 1
            return False
        lines.written += 1
        return True

    def changed(self, principal: str, host: str, what: str) -> None:
        log.info("%s from %s: %.1000s", _one_line(principal), host, _one_line(what))


def _tell_left_out(denial: Denial, count: int) -> None:
    if count:
        principal = _one_line(denial.principal)
        log.warning("%d more denials of %s from %s", count, principal, denial.host)


def _one_line(text: str) -> str:
    """Nobody's name can look like another line of the log."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
