"""What a broker knows when a test has failed, as text for a person."""

from collections.abc import Callable
from itertools import groupby
from typing import Final

from millstream.testing.broker import Broker
from millstream.testing.cluster import Cluster
from millstream.testing.kafka import Kafka

_REQUESTS_SHOWN: Final = 20
_TOPICS_SHOWN: Final = 20
_GROUPS_SHOWN: Final = 20
_CLIENTS_SHOWN: Final = 20


def describe(kafka: Kafka) -> str:
    lines = [f"Kafka at {kafka.bootstrap}"]
    parts: list[Callable[[], list[str]]] = []
    if isinstance(kafka, Broker | Cluster):
        # First: the report's own requests are of no interest.
        parts += [lambda: _requests(kafka), lambda: _clients(kafka)]
    parts += [lambda: _topics(kafka), lambda: _groups(kafka)]
    for part in parts:
        try:
            lines += part()
        except Exception as failed:
            # The test's own failure matters more.
            lines.append(f"cannot be asked: {failed}")
    return "\n".join(lines)


def _topics(kafka: Kafka) -> list[str]:
    names = [name for name in kafka.topic_names() if not name.startswith("__")]
    lines = [f"{len(names)} topics; end offsets by partition:"]
    for name in names[:_TOPICS_SHOWN]:
        ends = kafka.topic(name).end_offsets()
        lines.append(f"  {name}: " + ", ".join(f"{index}: {end}" for index, end in ends.items()))
    return lines


def _groups(kafka: Kafka) -> list[str]:
    states = kafka.group_states()
    lines = [f"{len(states)} groups:"]
    for name, state in sorted(states.items())[:_GROUPS_SHOWN]:
        lines.append(f"  {name}: {state.lower()}, {kafka.group(name).lag()} records behind")
    return lines


def _requests(kafka: Broker | Cluster) -> list[str]:
    seen = kafka.requests()
    runs = [list(run) for _, run in groupby(seen, lambda one: (one.api, one.client_id, one.error))]
    lines = ["the last requests, alike ones in one line:"]
    for run in runs[-_REQUESTS_SHOWN:]:
        one = run[-1]
        took = "no answer yet" if one.latency_ms is None else f"{one.latency_ms:.1f} ms"
        ended = one.fault or one.error
        times = f"{len(run)} times, " if len(run) > 1 else ""
        lines.append(
            f"  {one.api} {one.version} of {one.client_id or 'a client without id'}, {times}"
            f"{one.size_bytes} bytes, {took}" + (f" ({ended})" if ended else "")
        )
    lines += [f"fault: {rule}" for rule in kafka.faults.rules]
    return lines


def _clients(kafka: Broker | Cluster) -> list[str]:
    found = kafka.clients()
    lines = [f"{len(found)} connections:"]
    for one in found[:_CLIENTS_SHOWN]:
        name = one.client_id or "a client without id"
        lines.append(f"  {name} ({one.software or 'unknown'}) from {one.address}")
    return lines
