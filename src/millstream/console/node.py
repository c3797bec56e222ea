"""The node in this process, for what no protocol says: connections, counters, files."""

import asyncio
import os
import resource
from dataclasses import dataclass
from typing import Final

from millstream.broker.broker import Broker
from millstream.broker.network.output import SENT
from millstream.broker.requests.client_telemetry import ClientInstance
from millstream.broker.requests.routes import served
from millstream.broker.requests.timing import RequestTimes
from millstream.cluster.znodes import decode_uuid, encode_uuid
from millstream.console.metrics.appended import AppendedBytes
from millstream.console.metrics.client_metrics import PushedMetrics
from millstream.console.metrics.table import NodeNumbers
from millstream.console.waiting_requests import count_waiting
from millstream.replication.group_commit import Durability
from millstream.replication.partition import Partition
from millstream.replication.replicated import ReplicatedPartition
from millstream.wire.otlp import ReadMetrics

_CLIENTS_MAX: Final = 1_000
# Requests are timed during this much of every second.
_TIMED_SECONDS: Final = 0.05
_TIMED_EVERY_SECONDS: Final = 1.0
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Client:
    """One connection."""

    peer: str
    listener: str
    client_id: str
    software: str
    principal: str
    idle_seconds: float


@dataclass(frozen=True, slots=True)
class ReportingClient:
    """A client that asked which metrics to push (KIP-714). It keeps its id over connections."""

    instance_id: str
    client_id: str
    software: str
    peer: str
    principal: str
    # Is its last connection open?
    is_connected: bool
    interval_ms: int
    # The metrics that it should push: prefixes of names.
    wanted: tuple[str, ...]
    # None before its first push.
    pushed_seconds_ago: float | None
    metric_count: int


class LocalNode:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.request_times = RequestTimes()
        self._appended = AppendedBytes()
        self._loop_lag_seconds = 0.0
        self._timing: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._appended.look(self.broker.node.partitions)
        self._timing = asyncio.get_running_loop().create_task(self._time())

    async def stop(self) -> None:
        if self._timing is not None:
            self._timing.cancel()
            await asyncio.gather(self._timing, return_exceptions=True)

    async def _time(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self.broker.time_requests(self.request_times, _TIMED_SECONDS)
            wanted = loop.time() + _TIMED_EVERY_SECONDS - _TIMED_SECONDS
            await asyncio.sleep(_TIMED_EVERY_SECONDS - _TIMED_SECONDS)
            self._loop_lag_seconds = max(loop.time() - wanted, 0.0)

    @property
    def node_id(self) -> int:
        return self.broker.node.node_id

    @property
    def checks_permissions(self) -> bool:
        """Is an authorizer configured? See `allowed`."""
        return self.broker.services.permissions.authorizer is not None

    def why_not_ready(self) -> str | None:
        """None if it can serve."""
        node = self.broker.node
        if any(partition.offline_reason is not None for partition in node.partitions):
            return "the data directory failed"
        return node.cluster.why_not_ready()

    def partition(self, topic: str, index: int) -> Partition | None:
        """None if this node has no replica of it."""
        return self.broker.node.partitions.find(topic, index)

    def clients(self) -> list[Client]:
        now = self.broker.node.clock.monotonic()
        found = [
            Client(
                one.peer,
                one.listener,
                one.client_id or "",
                one.client_software or "",
                str(one.principal),
                max(now - one.received_at, 0.0),
            )
            for one in list(self.broker.connections)[:_CLIENTS_MAX]
        ]
        return sorted(found, key=lambda one: (one.client_id, one.peer))

    def reporting_clients(self) -> list[ReportingClient]:
        now_ms = self.broker.node.now_ms()
        # The newest, if there are too many to show.
        seen = self.broker.services.telemetry.clients(now_ms)[-_CLIENTS_MAX:]
        found = [_reporting(one, now_ms) for one in seen]
        return sorted(found, key=lambda one: (one.client_id, one.instance_id))

    def pushed_metrics(self, instance_id: str) -> tuple[ReportingClient, ReadMetrics] | None:
        """A client with its newest metrics; None if it is not known, or has been forgotten."""
        now_ms = self.broker.node.now_ms()
        try:
            wanted = decode_uuid(instance_id)
        except ValueError:
            return None
        client = self.broker.services.telemetry.find(wanted, now_ms)
        if client is None:
            return None
        return _reporting(client, now_ms), client.metrics or ReadMetrics()

    def all_pushed_metrics(self) -> list[PushedMetrics]:
        seen = self.broker.services.telemetry.clients(self.broker.node.now_ms())
        return [
            PushedMetrics(
                one.connection.client_id or "", encode_uuid(one.instance_id), one.metrics.points
            )
            for one in seen
            if one.metrics is not None
        ]

    def counters(self) -> dict[str, int]:
        """Counters whose rates are charted; called with every sample."""
        self._appended.look(self.broker.node.partitions)
        return {
            "node.requests": sum(self.broker.services.counts.values()),
            "node.bytes_in": sum(self._appended.by_topic.values()),
            "node.bytes_out": SENT.by_sendfile + SENT.by_copy,
            "node.sendfile": SENT.by_sendfile,
            "node.copied": SENT.by_copy,
        }

    def numbers(self) -> NodeNumbers:
        node = self.broker.node
        self._appended.look(node.partitions)
        names = {key: _name(api.name) for key, api in served().items()}
        counts = self.broker.services.counts
        times = self.request_times.by_api
        connections: dict[str, int] = {}
        for one in self.broker.connections:
            connections[one.listener] = connections.get(one.listener, 0) + 1
        tally = _Tally(node.disk.durability)
        for partition in node.partitions:
            tally.add(partition)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return NodeNumbers(
            node_id=node.node_id,
            requests={names[key]: count for key, count in counts.items() if key in names},
            request_times={names[key]: each for key, each in times.items() if key in names},
            appended_bytes=dict(self._appended.by_topic),
            appended_records=tally.records,
            sent_by_sendfile=SENT.by_sendfile,
            sent_by_copy=SENT.by_copy,
            connections=connections,
            partition_count=tally.partitions,
            leader_count=tally.leaders,
            under_replicated=tally.under_replicated,
            under_min_isr=tally.under_min_isr,
            offline=tally.offline,
            is_controller=node.cluster.controller_id == node.node_id,
            segment_count=tally.segments,
            fetches_waiting=tally.fetches_waiting,
            produces_waiting=tally.produces_waiting,
            unsynced_records=tally.unsynced,
            dead_letters=_dead_letters(self.broker),
            loop_lag_seconds=self._loop_lag_seconds,
            resident_bytes=_resident_bytes(),
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            open_files=len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
        )


class _Tally:
    """Sums over the partitions of a node."""

    def __init__(self, durability: Durability) -> None:
        self._durability = durability
        self.records: dict[str, int] = {}
        self.partitions = self.leaders = self.under_replicated = self.under_min_isr = 0
        self.offline = self.segments = self.unsynced = 0
        self.fetches_waiting = self.produces_waiting = 0

    def add(self, partition: Partition) -> None:
        log, topic = partition.log, partition.topic_partition.topic
        self.partitions += 1
        self.records[topic] = self.records.get(topic, 0) + log.next_offset
        self.segments += len(log.segments)
        waiting = count_waiting(partition, self._durability)
        self.fetches_waiting += waiting.fetches
        self.produces_waiting += waiting.produces
        self.unsynced += max(log.next_offset - log.synced_offset, 0)
        self.offline += partition.offline_reason is not None
        self.leaders += partition.is_leader
        if isinstance(partition, ReplicatedPartition) and partition.leader is not None:
            leadership = partition.leader.leadership
            self.under_replicated += len(leadership.isr) < len(leadership.replicas)
            self.under_min_isr += not leadership.has_enough_in_sync


def _reporting(client: ClientInstance, now_ms: int) -> ReportingClient:
    connection, metrics = client.connection, client.metrics
    return ReportingClient(
        instance_id=encode_uuid(client.instance_id),
        client_id=connection.client_id or "",
        software=connection.client_software or "",
        peer=connection.peer,
        principal=str(connection.principal),
        is_connected=not connection.is_closed,
        interval_ms=client.wanted.interval_ms,
        wanted=client.wanted.metrics,
        pushed_seconds_ago=None if metrics is None else (now_ms - client.read_at_ms) / 1000,
        metric_count=0 if metrics is None else len(metrics.points),
    )


def _dead_letters(broker: Broker) -> dict[str, int]:
    coordination = broker.coordination
    return dict(coordination.sharing.dead_letters.written) if coordination.has_sharing else {}


def _name(api: str) -> str:
    """`list_offsets` as Kafka calls it: ListOffsets."""
    return "".join(part.capitalize() for part in api.split("_"))


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
