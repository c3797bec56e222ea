"""Who is connected to the node of this process."""

from dataclasses import dataclass

from millstream.console.allowed import require_describe_cluster
from millstream.console.console import Console
from millstream.console.page import Page, Values


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


async def clients(console: Console, values: Values) -> Clients:
    if console.node is None:
        return Clients(None)
    await require_describe_cluster(console)
    return Clients(
        [
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
    )


PAGES = (Page("/clients", "clients.html", clients, "Clients that are connected to this node"),)
