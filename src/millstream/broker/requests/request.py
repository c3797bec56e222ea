"""What a handler is given besides the body: who asks, over what, in which version."""

from dataclasses import dataclass

from millstream.broker.network.connection import Connection
from millstream.model import ANONYMOUS, Principal
from millstream.wire.headers import RequestHeader


@dataclass(slots=True)
class Request:
    header: RequestHeader
    connection: Connection

    @property
    def version(self) -> int:
        return self.header.version

    @property
    def principal(self) -> Principal:
        """Nobody says who they are yet."""
        return ANONYMOUS

    @property
    def listener(self) -> str:
        return self.connection.listener

    @property
    def client_host(self) -> str:
        """As Kafka shows it: the address behind a slash, without the port."""
        return "/" + self.connection.peer.rpartition(":")[0]
