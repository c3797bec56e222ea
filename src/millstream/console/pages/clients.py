"""Who is connected to the node of this process, and the metrics that clients push to it."""

from dataclasses import dataclass
from typing import Final

from millstream.console.allowed import require_describe_cluster
from millstream.console.console import Console, NotFound
from millstream.console.node import ReportingClient
from millstream.console.page import Page, Parameter, Values
from millstream.wire.otlp import MetricPoint

_METRICS_SHOWN: Final = 1_000


@dataclass(frozen=True, slots=True)
class ClientRow:
    peer: str
    listener: str
    client_id: str
    software: str
    principal: str
    connection_count: int
    idle_seconds: float


@dataclass(frozen=True, slots=True)
class Clients:
    """`rows` is None where the console runs alone."""

    rows: list[ClientRow] | None
    reporting: list[ReportingClient]


@dataclass(frozen=True, slots=True)
class ClientMetrics:
    client: ReportingClient
    query: str
    # Those whose names or labels contain the query, by name; the first if there are many.
    metrics: list[MetricPoint]
    count: int
    # Did the node keep everything that the client sent?
    is_complete: bool


async def clients(console: Console, values: Values) -> Clients:
    if console.node is None:
        return Clients(None, [])
    await require_describe_cluster(console)
    rows = [
        ClientRow(
            one.peer,
            one.listener,
            one.client_id,
            one.software,
            one.principal,
            1,
            one.idle_seconds,
        )
        for one in console.node.clients()
    ]
    return Clients(rows, console.node.reporting_clients())


async def client_metrics(console: Console, values: Values) -> ClientMetrics:
    if console.node is None:
        raise NotFound("A console that runs alone cannot see the metrics of clients.")
    await require_describe_cluster(console)
    instance_id, query = values.text("instance"), values.text("q")
    found = console.node.pushed_metrics(instance_id)
    if found is None:
        raise NotFound(f"No client {instance_id[:40]} has reported to this node lately.")
    client, pushed = found
    chosen = sorted(
        (one for one in pushed.points if _contains(one, query.lower())),
        key=lambda one: (one.name, sorted(one.labels.items())),
    )
    return ClientMetrics(client, query, chosen[:_METRICS_SHOWN], len(chosen), pushed.is_complete)


def _contains(point: MetricPoint, query: str) -> bool:
    return query in point.name.lower() or any(
        query in text.lower() for text in point.labels.values()
    )


PAGES = (
    Page("/clients", "clients.html", clients, "Clients that are connected, or push their metrics"),
    Page(
        "/clients/{instance}",
        "client_metrics.html",
        client_metrics,
        "The newest metrics that a client pushed",
        (Parameter("q", "a part of a metric's name, or of a label"),),
    ),
)
