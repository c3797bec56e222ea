"""Any request to any node, for what client libraries have no call for.

One connection per node, opened when first asked. Failures are `CommandFailed`, in words.
"""

import socket
import struct
from types import TracebackType
from typing import Final, TypeVar

from millstream import __version__
from millstream.cli.bootstrap import REQUEST_SECONDS_MAX, check_reachable
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.errors import KafkaCode, ProtocolError
from millstream.model import TopicPartition
from millstream.wire.apis.describe_cluster import DescribeClusterBroker, DescribeClusterRequest
from millstream.wire.apis.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from millstream.wire.codec import request_writer, response_reader
from millstream.wire.cursor import Cursor
from millstream.wire.headers import RequestHeader, write_request_header
from millstream.wire.message import Message, Request

Address = tuple[str, int]
M = TypeVar("M", bound=Message)

_SIZE: Final = struct.Struct(">i")
_RESPONSE_BYTES_MAX: Final = 1 << 26
_METADATA_VERSION: Final = 9
_FIND_COORDINATOR_VERSION: Final = 3
_LOG_DIRS_VERSION: Final = 1
GROUP_COORDINATOR: Final = 0
TRANSACTION_COORDINATOR: Final = 1


class Cluster:
    """`with Cluster(bootstrap) as cluster: cluster.ask(node, XRequest(...), 0)`"""

    def __init__(self, bootstrap: str) -> None:
        self._first = check_reachable(bootstrap)
        self._sockets: dict[Address, socket.socket] = {}

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for sock in self._sockets.values():
            sock.close()

    def metadata(self, *topics: str) -> MetadataResponse:
        """All nodes, and these topics, or without any all topics."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics] if topics else None,
            allow_auto_topic_creation=False,
        )
        return self.ask(self._first, request, _METADATA_VERSION)

    def live_nodes(self) -> list[DescribeClusterBroker]:
        """Not those of `metadata`, which may for a moment have one that died."""
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        answer = self.ask(self._first, request, 0)
        check(answer.error_code, "cluster", answer.error_message)
        return sorted(answer.brokers, key=lambda one: one.broker_id)

    def nodes(self) -> list[Address]:
        return [(one.host, one.port) for one in self.live_nodes()]

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
        found = self.ask(self._first, request, _FIND_COORDINATOR_VERSION)
        check(found.error_code, f"coordinator of {key}", found.error_message)
        return found.host, found.port

    def ask(self, node: Address, request: Request[M], version: int) -> M:
        api, kind = request.api, type(request)
        body = bytearray()
        write_request_header(body, RequestHeader(api.key, version, 1, f"millstream/{__version__}"))
        request_writer(kind, version)(body, request)
        try:
            cursor = Cursor(memoryview(self._exchange(node, body)), 4)
            if api.is_flexible(version):
                cursor.skip_tags()
            return response_reader(kind, version)(cursor)
        except OSError as error:
            raise CommandFailed(
                f"{node[0]}:{node[1]}: connection lost ({error})", exit_code=ExitCode.UNREACHABLE
            ) from None
        except ProtocolError as error:
            raise CommandFailed(
                f"{node[0]}:{node[1]} answered what makes no sense: {error}"
            ) from None

    def _exchange(self, node: Address, frame: bytearray) -> bytes:
        sock = self._sockets.get(node)
        if sock is None:
            sock = socket.create_connection(node, timeout=REQUEST_SECONDS_MAX)
            self._sockets[node] = sock
        sock.sendall(_SIZE.pack(len(frame)) + frame)
        (size,) = _SIZE.unpack(_receive(sock, _SIZE.size))
        if not 4 <= size <= _RESPONSE_BYTES_MAX:
            raise ProtocolError(f"response of {size} bytes")
        return _receive(sock, size)


def _receive(sock: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = sock.recv(size - len(parts))
        if not part:
            raise ConnectionError("closed by the node")
        parts += part
    return bytes(parts)


def check(code: int, subject: str, message: str | None = None) -> None:
    """Raises CommandFailed where a node answered with an error."""
    if code != KafkaCode.NONE:
        name = KafkaCode(code).name
        raise CommandFailed(f"{subject}: {message} ({name})" if message else f"{subject}: {name}")
