"""A node that believes its clients: `User:<client id>` is the principal, `node-<n>` is node n.

For tests of permissions and quotas, which do not depend on how a client proves its name.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from unittest.mock import patch

from millstream.broker.network.connection import Connection
from millstream.broker.network.replies import Pending, Pieces
from millstream.model import Principal
from millstream.wire.cursor import Cursor
from millstream.wire.headers import read_request_header
from tests.support.broker import Broker
from tests.support.open_node import OpenNode

ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root",
}


class CredulousNode(OpenNode):
    def dispatch(self, connection: Connection, frame: memoryview) -> Pieces | Pending:
        name = read_request_header(Cursor(frame)).client_id or "ANONYMOUS"
        connection.principal = Principal(f"User:{name}")
        if name.startswith("node-"):
            connection.proved_node_id = int(name.removeprefix("node-"))
        return super().dispatch(connection, frame)


@contextmanager
def credulous_broker(settings: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """With ACLs; the super user is `root`. Topics are created by it."""
    with patch("millstream.testing.broker.Node", CredulousNode):
        broker = Broker(settings={**ACLS, **(settings or {})})
    with patch("millstream.testing.broker.Node", CredulousNode), broker:
        yield broker
