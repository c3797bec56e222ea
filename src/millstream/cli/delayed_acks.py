"""Explains why records are not acknowledged: while a command waits, and when it gives up.

A client silently retries what a broker refuses temporarily. The cluster knows the reason: a
partition without a leader, or with fewer in-sync replicas than acks=all needs.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.cli.bootstrap import (
    REQUEST_SECONDS_MAX,
    connect_admin,
    describe_topic,
    wait_for,
)
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.output import counted, echo

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_LOOK_SECONDS: Final = 0.5
_TELL_AFTER_SECONDS: Final = 2.0
_PRINT_EVERY_SECONDS: Final = 15.0
_MIN_ISR: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class Acknowledged:
    count: int
    waiting_count: int


@dataclass(frozen=True, slots=True)
class Hindered:
    """A partition of the topic, as the cluster sees it."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class Patience:
    """When to look for a reason, and when to print it: at once if it is new, otherwise rarely."""

    def __init__(self, *, now: float) -> None:
        self._count = -1
        self._since = now
        self._printed: tuple[str, float] | None = None

    def is_over(self, seen: Acknowledged, *, now: float) -> bool:
        """Was nothing acknowledged for a while, although something waits?"""
        if seen.count != self._count or seen.waiting_count == 0:
            self._count, self._since, self._printed = seen.count, now, None
        return now - self._since >= _TELL_AFTER_SECONDS

    def is_due(self, text: str, *, now: float) -> bool:
        printed_text, printed_at = self._printed or ("", 0.0)
        if printed_text == text and now - printed_at < _PRINT_EVERY_SECONDS:
            return False
        self._printed = (text, now)
        return True


class Delay:
    def __init__(self, bootstrap: str, topic: str, *, is_acks_all: bool) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._is_acks_all = is_acks_all

    @contextlib.contextmanager
    def explained(self, acknowledged: Callable[[], Acknowledged]) -> Iterator[None]:
        """Print what the command waits for."""
        done = threading.Event()
        thread = threading.Thread(target=self._watch, args=(acknowledged, done), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(_LOOK_SECONDS)

    def failure(self, what: str) -> CommandFailed:
        try:
            reason = self._reason() or "the cluster shows no reason; check the logs of its nodes"
        except CommandFailed as failed:
            reason = str(failed)
        if not self._is_acks_all:
            reason += ". Nodes that cannot reach ZooKeeper accept records with acks=all only"
        return CommandFailed(f"topic {self._topic}: {what}: {reason}", exit_code=ExitCode.TIMEOUT)

    def _watch(self, acknowledged: Callable[[], Acknowledged], done: threading.Event) -> None:
        patience = Patience(now=time.monotonic())
        while not done.wait(_LOOK_SECONDS):
            seen = acknowledged()
            if not patience.is_over(seen, now=time.monotonic()):
                continue
            try:
                reason = self._reason()
            except CommandFailed as failed:
                if failed.exit_code == ExitCode.UNREACHABLE:
                    # The command itself ends with that, unless the broker comes back.
                    continue
                reason = str(failed)
            text = "not acknowledged yet" + ("" if reason is None else f": {reason}")
            if not done.is_set() and patience.is_due(text, now=time.monotonic()):
                echo(f"millstream: {counted(seen.waiting_count, 'record')} {text}", err=True)

    def _reason(self) -> str | None:
        """None if the cluster shows no problem. Raises CommandFailed if it does not answer."""
        admin = self._admin
        description = describe_topic(admin, self._topic)
        needed = self._needed_in_sync(admin) if self._is_acks_all else 1
        partitions = [
            Hindered(
                one.id,
                None if one.leader is None or one.leader.id < 0 else one.leader.id,
                tuple(node.id for node in one.replicas),
                tuple(node.id for node in one.isr),
            )
            for one in description.partitions
        ]
        return reason(partitions, needed)

    @functools.cached_property
    def _admin(self) -> "AdminClient":
        """Made when first needed: few commands wait. Raises CommandFailed."""
        return connect_admin(self._bootstrap)

    def _needed_in_sync(self, admin: "AdminClient") -> int:
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        answers = admin.describe_configs([resource], request_timeout=REQUEST_SECONDS_MAX)
        configs = wait_for(answers[resource], f"topic {self._topic}")
        return int(configs[_MIN_ISR].value or 1)


def reason(partitions: Sequence[Hindered], needed: int) -> str | None:
    """What keeps records from being acknowledged, and what to do about it."""
    leaderless = [one for one in partitions if one.leader is None]
    if leaderless:
        one = leaderless[0]
        return (
            f"partition {one.partition} has no leader; its replicas are on nodes"
            f" {_ids(one.replicas)}, and one that has all records must come back"
        )
    for one in partitions:
        in_sync_min = min(needed, len(one.replicas))
        if len(one.in_sync) < in_sync_min:
            missing = [node for node in one.replicas if node not in one.in_sync]
            return (
                f"partition {one.partition} has {counted(len(one.in_sync), 'replica')} in sync and"
                f" {_MIN_ISR} is {needed}; nodes {_ids(missing)} are down or behind."
                " Start them, or set a smaller value on the topic"
            )
    return None


def _ids(ids: Sequence[int]) -> str:
    return ", ".join(str(each) for each in ids)
