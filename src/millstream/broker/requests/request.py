"""What a handler gets besides the body: the caller, its connection, and the version."""

from millstream.broker.network.connection import Connection
from millstream.lazy_dataclass import dataclass
from millstream.model import Principal
from millstream.wire.headers import RequestHeader


@dataclass(slots=True)
class Request:
    header: RequestHeader
    connection: Connection
    # Did it take several turns (see `turns`)? Then its response may be large, too.
    is_long: bool = False
    # What was prepared for its answer, to be freed in parts once that is given.
    prepared: tuple[object, ...] = ()

    @property
    def version(self) -> int:
        return self.header.version

    @property
    def principal(self) -> Principal:
        return self.connection.principal

    @property
    def listener(self) -> str:
        return self.connection.listener

    @property
    def client_host(self) -> str:
        """In Kafka's form: the address after a slash, without the port."""
        return "/" + self.connection.peer.rpartition(":")[0]
