"""Client telemetry (KIP-714): what each client should push, whether it may push now, and the
newest values that it pushed.

Every node serves its own connections and knows only these. State is bounded: the least recently
seen clients go first, of those that share an address or a user too, and clients that stay silent
for three intervals are forgotten. A closed connection is not kept. Nothing is written to the disk.

Time is passed in, in milliseconds of the monotonic clock. Knows neither loop nor threads.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final, Protocol
from uuid import UUID

from millstream.broker.requests.pacing import Each, at_once
from millstream.cluster.znodes import encode_uuid
from millstream.config import BrokerConfig, Subscription, parse_subscription
from millstream.config.client_metrics_config import (
    CLIENT_ID,
    CLIENT_INSTANCE_ID,
    CLIENT_SOFTWARE_NAME,
    CLIENT_SOFTWARE_VERSION,
    CLIENT_SOURCE_ADDRESS,
    CLIENT_SOURCE_PORT,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass
from millstream.model import Codec, Principal
from millstream.records.checksum import crc32c
from millstream.records.compression import TooLarge, decompress
from millstream.wire.otlp import MetricPoint, ReadMetrics, read_metrics

# In the order of preference: clients take the first that they know.
ACCEPTED_CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
# As many as Kafka keeps.
_INSTANCES_MAX: Final = 16_384
# Ids are free to invent: nobody may push out those of all others.
_INSTANCES_OF_CLIENT_MAX: Final = 2_048
_KEPT_TEXT_LENGTH_MAX: Final = 250
# Values of all clients together, so that nobody fills the memory with labels.
_KEPT_BYTES_MAX: Final = 32 << 20
_POINT_BYTES: Final = 400
# A client is forgotten after this long, or after three intervals if that is longer and it is still
# there or has pushed something.
_FORGOTTEN_AFTER_MS: Final = 60_000
_SWEPT_EVERY_MS: Final = 10_000
_ALL_METRICS: Final = "*"
# Kafka's ids that no client can have.
_RESERVED_IDS: Final = frozenset({UUID(int=0), UUID(int=1)})
# After these a client may ask again at once.
_ASK_AGAIN: Final = frozenset(
    {KafkaCode.UNKNOWN_SUBSCRIPTION_ID, KafkaCode.UNSUPPORTED_COMPRESSION_TYPE}
)


class TelemetrySocket(Protocol):
    def fileno(self) -> int: ...


class TelemetryConnection(Protocol):
    """What is known of a client by its connection."""

    @property
    def sock(self) -> TelemetrySocket: ...

    # All connections of a user at an address, or of an address, are one client.
    client: str
    peer: str
    client_id: str | None
    client_software: str | None
    principal: Principal


@dataclass(frozen=True, slots=True)
class LastConnection:
    """What is kept of a client's connection: its texts are shortened."""

    client: str
    peer: str
    client_id: str
    client_software: str
    principal: Principal
    # Almost nothing is left of it once it is closed, unlike of the connection.
    _sock: TelemetrySocket

    @property
    def is_closed(self) -> bool:
        return self._sock.fileno() < 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one client should push."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


@dataclass(slots=True)
class ClientInstance:
    """One client, by the id that it has from a node. It keeps the id over its connections."""

    instance_id: UUID
    connection: LastConnection
    wanted: Wanted
    # The subscriptions that `wanted` is computed from: a count of their changes.
    generation: int
    seen_at_ms: int
    asked_at_ms: int | None = None
    # The last push that was not too early, whether or not it was accepted.
    pushed_at_ms: int | None = None
    # Has it announced that its last push was the last?
    is_terminating: bool = False
    last_code: KafkaCode = KafkaCode.NONE
    # The newest values; None before the first push. `read_at_ms` is when they came.
    metrics: ReadMetrics | None = None
    read_at_ms: int = 0
    kept_bytes: int = 0

    def is_forgotten(self, now_ms: int) -> bool:
        silence_ms = _FORGOTTEN_AFTER_MS
        # It would start again on another connection: without values, there is nothing to keep.
        if self.metrics is not None or not self.connection.is_closed:
            silence_ms = max(silence_ms, 3 * self.wanted.interval_ms)
        return now_ms - self.seen_at_ms > silence_ms


@dataclass(slots=True)
class ClientTelemetry:
    """All clients of this node. `_kept_bytes` is the sum over `_instances`, which are in the order
    in which they were last seen; so are the ids in `_ids`, by `LastConnection.client`."""

    _instances: OrderedDict[UUID, ClientInstance] = field(default_factory=OrderedDict)
    _ids: dict[str, OrderedDict[UUID, None]] = field(default_factory=dict)
    _kept_bytes: int = 0
    _swept_at_ms: int = 0
    # The subscriptions as they are stored, parsed, and how often they have changed.
    _stored: dict[str, dict[str, str]] = field(default_factory=dict)
    _subscriptions: list[Subscription] = field(default_factory=list)
    _default_interval_ms: int = 0
    _generation: int = 0

    def subscribe(
        self, config: BrokerConfig, stored: Mapping[str, dict[str, str]], now_ms: int
    ) -> None:
        """Take over the subscriptions in force; to be called before each request."""
        if self._generation == 0 or self._stored != stored:
            self._stored = dict(stored)
            self._subscriptions = [parse_subscription(config, each) for each in stored.values()]
            self._default_interval_ms = parse_subscription(config, {}).interval_ms
            self._generation += 1
        if now_ms - self._swept_at_ms >= _SWEPT_EVERY_MS:
            self._swept_at_ms = now_ms
            self._sweep(now_ms)

    def ask(self, instance_id: UUID, connection: TelemetryConnection, now_ms: int) -> Wanted:
        """GetTelemetrySubscriptions. Raises KafkaError."""
        client = self._instance(instance_id, connection, now_ms)
        if _may_ask(client, now_ms):
            client.asked_at_ms = now_ms
        elif client.last_code not in _ASK_AGAIN:
            raise _too_early(client)
        client.last_code = KafkaCode.NONE
        return client.wanted

    def begin_push(
        self,
        instance_id: UUID,
        connection: TelemetryConnection,
        push: "Push",
        now_ms: int,
    ) -> ClientInstance:
        """PushTelemetry, before its metrics are read. Raises KafkaError."""
        if instance_id in _RESERVED_IDS:
            raise KafkaError(
                KafkaCode.INVALID_REQUEST, f"{instance_id} is not the id of a client instance"
            )
        client = self._instance(instance_id, connection, now_ms)
        try:
            _check_push(client, push, now_ms)
        except KafkaError as error:
            client.last_code = error.code
            raise
        finally:
            client.is_terminating = push.is_terminating
        client.last_code = KafkaCode.NONE
        return client

    def end_push(self, client: ClientInstance, metrics: ReadMetrics, now_ms: int) -> None:
        """Keep the values of a push. A client may have been forgotten while they were read."""
        if self._instances.get(client.instance_id) is not client:
            return
        size = sum(map(_kept_bytes, metrics.points))
        self._kept_bytes += size - client.kept_bytes
        client.metrics, client.kept_bytes, client.read_at_ms = metrics, size, now_ms
        for other in self._instances.values():
            if self._kept_bytes <= _KEPT_BYTES_MAX:
                break
            if other is not client:
                self._drop_values(other)

    def clients(self, now_ms: int) -> list[ClientInstance]:
        """The clients that were seen lately."""
        self._sweep(now_ms)
        return list(self._instances.values())

    def find(self, instance_id: UUID, now_ms: int) -> ClientInstance | None:
        client = self._instances.get(instance_id)
        return None if client is None or client.is_forgotten(now_ms) else client

    def _instance(
        self, instance_id: UUID, connection: TelemetryConnection, now_ms: int
    ) -> ClientInstance:
        """The client, with the subscriptions in force. One that has reconnected, or has other
        subscriptions now, starts again; only its values stay."""
        known = self._take(instance_id)
        if (
            known is not None
            and known.generation == self._generation
            and not known.connection.is_closed
        ):
            client = known
            client.seen_at_ms = now_ms
        else:
            wanted = match_client(
                instance_id, connection, self._subscriptions, self._default_interval_ms
            )
            last = _last_connection(connection)
            client = ClientInstance(instance_id, last, wanted, self._generation, now_ms)
            if known is not None:
                client.metrics, client.read_at_ms = known.metrics, known.read_at_ms
                client.kept_bytes = known.kept_bytes
        self._keep(client)
        return client

    def _keep(self, client: ClientInstance) -> None:
        """As the one that was seen last."""
        self._instances[client.instance_id] = client
        ids = self._ids.setdefault(client.connection.client, OrderedDict())
        ids[client.instance_id] = None
        if len(ids) > _INSTANCES_OF_CLIENT_MAX:
            self._forget(next(iter(ids)))
        elif len(self._instances) > _INSTANCES_MAX:
            self._forget(next(iter(self._instances)))

    def _take(self, instance_id: UUID) -> ClientInstance | None:
        client = self._instances.pop(instance_id, None)
        if client is not None:
            ids = self._ids[client.connection.client]
            del ids[instance_id]
            if not ids:
                del self._ids[client.connection.client]
        return client

    def _sweep(self, now_ms: int) -> None:
        gone = [each for each, client in self._instances.items() if client.is_forgotten(now_ms)]
        for instance_id in gone:
            self._forget(instance_id)

    def _forget(self, instance_id: UUID) -> None:
        client = self._take(instance_id)
        assert client is not None
        self._drop_values(client)

    def _drop_values(self, client: ClientInstance) -> None:
        self._kept_bytes -= client.kept_bytes
        client.metrics, client.kept_bytes = None, 0


@dataclass(frozen=True, slots=True)
class Push:
    """A PushTelemetry request, apart from who sent it."""

    subscription_id: int
    is_terminating: bool
    compression_type: int
    size_bytes: int
    size_bytes_max: int


def _last_connection(connection: TelemetryConnection) -> LastConnection:
    return LastConnection(
        client=connection.client[:_KEPT_TEXT_LENGTH_MAX],
        peer=connection.peer,
        client_id=(connection.client_id or "")[:_KEPT_TEXT_LENGTH_MAX],
        client_software=(connection.client_software or "")[:_KEPT_TEXT_LENGTH_MAX],
        principal=Principal(connection.principal[:_KEPT_TEXT_LENGTH_MAX]),
        _sock=connection.sock,
    )


def match_client(
    instance_id: UUID,
    connection: TelemetryConnection,
    subscriptions: Iterable[Subscription],
    default_interval_ms: int,
) -> Wanted:
    """The metrics of all subscriptions that match the client, at the shortest of their intervals,
    but at least as often as by default."""
    attributes = attributes_of(instance_id, connection)
    matching = [each for each in subscriptions if each.matches(attributes)]
    names = {name for each in matching for name in each.metrics}
    metrics = (_ALL_METRICS,) if _ALL_METRICS in names else tuple(sorted(names))
    interval_ms = min([default_interval_ms, *(each.interval_ms for each in matching)])
    return Wanted(_subscription_id(metrics, interval_ms, instance_id), metrics, interval_ms)


def attributes_of(instance_id: UUID, connection: TelemetryConnection) -> dict[str, str]:
    """What subscriptions can match."""
    software, _, version = (connection.client_software or "").partition(" ")
    address, _, port = connection.peer.rpartition(":")
    return {
        CLIENT_INSTANCE_ID: encode_uuid(instance_id),
        CLIENT_ID: connection.client_id or "",
        CLIENT_SOFTWARE_NAME: software,
        CLIENT_SOFTWARE_VERSION: version,
        CLIENT_SOURCE_ADDRESS: address,
        CLIENT_SOURCE_PORT: port,
    }


def _subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: UUID) -> int:
    """The same on every node, so that a client may push to another than it asked."""
    checksum = crc32c(f"{','.join(metrics)} {interval_ms}".encode())
    number = checksum ^ (instance_id.int & 0xFFFFFFFF)
    return number - (1 << 32) if number >= 1 << 31 else number


def _may_ask(client: ClientInstance, now_ms: int) -> bool:
    before = [each for each in (client.asked_at_ms, client.pushed_at_ms) if each is not None]
    return not before or now_ms - max(before) >= client.wanted.interval_ms


def _may_push(client: ClientInstance, now_ms: int) -> bool:
    """The first push after a question may come early: clients spread it at random."""
    if client.pushed_at_ms is None:
        return True
    if client.asked_at_ms is not None and client.asked_at_ms > client.pushed_at_ms:
        return True
    return now_ms - client.pushed_at_ms >= client.wanted.interval_ms


def _check_push(client: ClientInstance, push: Push, now_ms: int) -> None:
    """Raises the KafkaError that Kafka answers; records the time of a push that is not early."""
    if client.is_terminating:
        raise KafkaError(
            KafkaCode.INVALID_REQUEST, "the client has announced that its last push was the last"
        )
    if _may_push(client, now_ms):
        client.pushed_at_ms = now_ms
    elif not push.is_terminating:
        raise _too_early(client)
    if push.subscription_id != client.wanted.subscription_id:
        raise KafkaError(
            KafkaCode.UNKNOWN_SUBSCRIPTION_ID, "the client's subscriptions have changed"
        )
    if push.compression_type not in tuple(Codec):
        raise KafkaError(
            KafkaCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"there is no compression type {push.compression_type}",
        )
    if push.size_bytes > push.size_bytes_max:
        raise _too_large(push.size_bytes_max)


def read_payload(
    data: bytes | memoryview, codec: Codec, *, limit_bytes: int, each: Each = at_once
) -> ReadMetrics:
    """Unpack and read the metrics of a push. Raises KafkaError."""
    try:
        return read_metrics(decompress(codec, data, limit_bytes=limit_bytes), each)
    except TooLarge:
        raise _too_large(limit_bytes) from None
    except ValueError as problem:
        raise KafkaError(KafkaCode.INVALID_RECORD, f"unreadable metrics: {problem}") from None


def _too_early(client: ClientInstance) -> KafkaError:
    interval_ms = client.wanted.interval_ms
    return KafkaError(
        KafkaCode.THROTTLING_QUOTA_EXCEEDED, f"the push interval of {interval_ms} ms is not over"
    )


def _too_large(limit_bytes: int) -> KafkaError:
    return KafkaError(
        KafkaCode.TELEMETRY_TOO_LARGE, f"the metrics are larger than {limit_bytes} bytes"
    )


def _kept_bytes(point: MetricPoint) -> int:
    return _POINT_BYTES + len(point.name) + sum(map(len, _texts(point.labels)))


def _texts(labels: Mapping[str, str]) -> Iterator[str]:
    for name, text in labels.items():
        yield name
        yield text
