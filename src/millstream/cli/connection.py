"""Any request to any node, for what client libraries have no call for.

One connection per node, opened when first asked. Failures are `CommandFailed`, in words.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, TypeVar

from millstream.cli.bootstrap import REQUEST_SECONDS_MAX
from millstream.cli.client_options import security_of_command
from millstream.cli.failure import CommandFailed, ExitCode, NotNow
from millstream.cli.first_contact import CLIENT_ID, open_first
from millstream.client.blocking import Address, Connection
from millstream.client.protocol import NEWEST
from millstream.client.security import SecurityError
from millstream.errors import KafkaCode, ProtocolError
from millstream.model import TopicPartition
from millstream.wire.apis.describe_cluster import DescribeClusterBroker, DescribeClusterRequest
from millstream.wire.apis.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from millstream.wire.message import Message, Request

M = TypeVar("M", bound=Message)

_METADATA_VERSION: Final = 9
_FIND_COORDINATOR_VERSION: Final = 3
_LOG_DIRS_VERSION: Final = 1
# The controller has just changed, or ZooKeeper is away.
NOT_NOW: Final = frozenset({KafkaCode.NOT_CONTROLLER, KafkaCode.REQUEST_TIMED_OUT})
GROUP_COORDINATOR: Final = 0
TRANSACTION_COORDINATOR: Final = 1


class Cluster:
    """`with Cluster(bootstrap) as cluster: cluster.ask(node, XRequest(...))`"""

    def __init__(self, bootstrap: str, *, answer_seconds_max: float = REQUEST_SECONDS_MAX) -> None:
        self._answer_seconds_max = answer_seconds_max
        self._security = security_of_command()
        first = open_first(bootstrap, self._security)
        self.first = first.address
        self._connections: dict[Address, Connection] = {first.address: first}

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for connection in self._connections.values():
            connection.close()

    def metadata_of_nodes(self) -> MetadataResponse:
        """All nodes, and no topics."""
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        return self.ask(self.first, request, _METADATA_VERSION)

    def metadata(self, *topics: str, node: Address | None = None) -> MetadataResponse:
        """All nodes, and these topics, or without any all topics; as one node sees them."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics] if topics else None,
            allow_auto_topic_creation=False,
        )
        return self.ask(node or self.first, request, _METADATA_VERSION)

    def live_nodes(self) -> list[DescribeClusterBroker]:
        """Not those of `metadata`, which may for a moment have one that died."""
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        answer = self.ask(self.first, request, 0)
        check(answer.error_code, "cluster", answer.error_message)
        return sorted(answer.brokers, key=lambda one: one.broker_id)

    def nodes(self) -> list[Address]:
        return [Address(one.host, one.port) for one in self.live_nodes()]

    def partition_sizes(self, topic: str | None = None) -> dict[TopicPartition, int]:
        """Bytes of every partition, of one topic or of all: of the largest of its replicas."""
        partitions = {one.name: len(one.partitions) for one in self.metadata().topics}
        wanted = None
        if topic is not None:
            indexes = list(range(partitions.get(topic, 0)))
            wanted = [DescribableLogDirTopic(topic=topic, partitions=indexes)]
        sizes: dict[TopicPartition, int] = {}
        for node in self.nodes():
            answer = self.ask(node, DescribeLogDirsRequest(topics=wanted), _LOG_DIRS_VERSION)
            for directory in answer.results:
                for found in directory.topics:
                    for one in found.partitions:
                        where = TopicPartition(found.name, one.partition_index)
                        sizes[where] = max(sizes.get(where, 0), one.partition_size)
        return sizes

    def transaction_coordinator(self, transactional_id: str) -> Address:
        return self._coordinator(transactional_id, TRANSACTION_COORDINATOR)

    def group_coordinator(self, group_id: str) -> Address:
        return self._coordinator(group_id, GROUP_COORDINATOR)

    def _coordinator(self, key: str, key_type: int) -> Address:
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        found = self.ask(self.first, request, _FIND_COORDINATOR_VERSION)
        check(found.error_code, f"coordinator of {key}", found.error_message)
        return Address(found.host, found.port)

    def require(self, node: Address, request: type[Request[Message]]) -> None:
        """Raises CommandFailed where a node does not have a request of ours."""
        if not self._offers(node, request):
            raise CommandFailed(
                f"{node} does not offer this: it is no Millstream node, or an older one"
            )

    def offers(self, request: type[Request[Message]]) -> bool:
        """Does the first node have a request of ours?"""
        return self._offers(self.first, request)

    def _offers(self, node: Address, request: type[Request[Message]]) -> bool:
        with self.connected(node) as connection:
            return connection.versions.offers(request.api)

    def ask(self, node: Address, request: Request[M], newest: int = NEWEST) -> M:
        """An answer, in the newest version that both sides know, at most `newest`."""
        with self.connected(node) as connection:
            return connection.ask(request, newest, timeout_seconds=self._answer_seconds_max)

    @contextmanager
    def connected(self, node: Address) -> Iterator[Connection]:
        """A connection that is kept unless it fails; failures become CommandFailed."""
        connection = self._connections.pop(node, None)
        try:
            if connection is None:
                connection = Connection(
                    node,
                    client_id=CLIENT_ID,
                    security=self._security,
                    connect_seconds_max=self._answer_seconds_max,
                )
            yield connection
        except OSError as error:
            raise CommandFailed(
                f"{node}: connection lost ({error})", exit_code=ExitCode.UNREACHABLE
            ) from None
        except ProtocolError as error:
            raise CommandFailed(f"{node} answered what makes no sense: {error}") from None
        except SecurityError as error:
            raise CommandFailed(str(error)) from None
        self._connections[node] = connection


def check(code: int, subject: str, message: str | None = None) -> None:
    """Raises CommandFailed where a node answered with an error; NotNow if it may soon not."""
    if code != KafkaCode.NONE:
        failed = NotNow if code in NOT_NOW else CommandFailed
        raise failed(f"{subject}: {error_text(code, message)}")


def error_text(code: int, message: str | None) -> str:
    """What a node said about an error, and the error's name in Kafka."""
    name = KafkaCode(code).name
    return f"{message} ({name})" if message else name
