"""Hosts that fall silent, and hosts that come back: alerts by the machine's own clock.

Silence brings no event that could move a watermark.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostAlert:
    kind: str
    host: str
    since_ms: int
    text: str


@dataclass(slots=True)
class HeardHost:
    last_ms: int
    # Whether that was reported.
    is_silent: bool = False


def watch_hosts(
    hosts: dict[str, HeardHost], heard: Iterable[str], now_ms: int, *, silent_after_ms: int
) -> list[HostAlert]:
    """Update `hosts` by those that were heard just now; what is to be reported."""
    alerts = []
    for host in heard:
        known = hosts.get(host)
        if known is not None and known.is_silent:
            alerts.append(HostAlert("back", host, now_ms, "speaks again"))
        hosts[host] = HeardHost(now_ms)
    for host, known in hosts.items():
        if not known.is_silent and now_ms - known.last_ms >= silent_after_ms:
            known.is_silent = True
            text = f"no lines for {silent_after_ms / 1000:g} s"
            alerts.append(HostAlert("silent", host, known.last_ms, text))
    return alerts
