"""Hosts that fall silent, and hosts that come back: alerts by the machine's own clock.

Silence brings no event that could move a watermark.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# Hosts come and go: names of containers, say. After this a host that returns is a new one.
FORGOTTEN_AFTER_MS: Final = 24 * 3_600_000


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
    """Update `hosts` by those that were heard just now; what is to be reported.

    Those that have been silent for a day are forgotten.
    """
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
    forgotten_before_ms = now_ms - max(FORGOTTEN_AFTER_MS, silent_after_ms)
    for host in [each for each, known in hosts.items() if known.last_ms <= forgotten_before_ms]:
        if hosts[host].is_silent:
            del hosts[host]
    return alerts
