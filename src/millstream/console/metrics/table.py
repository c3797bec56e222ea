"""The metrics: names, help, and where each value comes from.

Names are those that dashboards for Kafka expect: `kafka_server_...` as the JMX exporter writes
them, `kafka_topic_...` and `kafka_consumergroup_...` as kafka_exporter does. What only this
broker has begins with `millstream_`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from millstream.broker.requests.timing import BOUNDS, Histogram
from millstream.console.facts import ClusterFacts, PartitionFacts
from millstream.model import TopicPartition

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class NodeNumbers:
    """What one node counts, at one moment."""

    node_id: int
    # By the name of the API: Produce, Fetch, ...
    requests: dict[str, int]
    request_times: dict[str, Histogram]
    appended_bytes: dict[str, int]
    appended_records: dict[str, int]
    sent_by_sendfile: int
    sent_by_copy: int
    connections: dict[str, int]
    partition_count: int
    leader_count: int
    under_replicated: int
    under_min_isr: int
    offline: int
    is_controller: bool
    segment_count: int
    fetches_waiting: int
    produces_waiting: int
    unsynced_records: int
    # By share group: letters since the start.
    dead_letters: dict[str, int]
    loop_lag_seconds: float
    resident_bytes: int
    cpu_seconds: float
    open_files: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`node` is None where the console runs alone."""

    facts: ClusterFacts
    node: NodeNumbers | None


# Not frozen: ten thousand partitions have a hundred thousand of them.
@dataclass(slots=True)
class Sample:
    value: float
    # Names and values, escaped: `topic="t",partition="0"`.
    labels: str = ""
    # After the name: _bucket, _sum, _count.
    suffix: str = ""


def labels(**values: str) -> str:
    return ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in values.items())


Read = Callable[[Snapshot], Iterable[Sample]]


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    # counter, gauge or histogram
    kind: str
    help: str
    labels: tuple[str, ...]
    read: Read
    # Needs the node's own process; absent from a console that runs alone.
    is_of_node: bool = False


def _of_partitions(value: Callable[[PartitionFacts], float]) -> Read:
    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for topic in snapshot.facts.topics.values():
            prefix = labels(topic=topic.name)
            for one in topic.partitions:
                yield Sample(value(one), f'{prefix},partition="{one.index}"')

    return read


def _of_node(value: Callable[[NodeNumbers], float]) -> Read:
    return lambda snapshot: [] if snapshot.node is None else [Sample(value(snapshot.node))]


def _of_counts(label: str, counts: Callable[[NodeNumbers], dict[str, int]]) -> Read:
    def read(snapshot: Snapshot) -> Iterator[Sample]:
        if snapshot.node is not None:
            for name, count in sorted(counts(snapshot.node).items()):
                yield Sample(count, labels(**{label: name}))

    return read


def _of_group(group_id: str, where: TopicPartition) -> str:
    return labels(consumergroup=group_id, topic=where.topic, partition=str(where.partition))


def _commits(snapshot: Snapshot) -> Iterator[Sample]:
    for group in snapshot.facts.groups.values():
        for where, offset in group.committed.items():
            yield Sample(offset, _of_group(group.group_id, where))


def _lags(snapshot: Snapshot) -> Iterator[Sample]:
    facts = snapshot.facts
    for group in facts.groups.values():
        for where, offset in group.committed.items():
            lag = facts.lag(where, offset)
            if lag is not None:
                yield Sample(lag, _of_group(group.group_id, where))


def _lag_sums(snapshot: Snapshot) -> Iterator[Sample]:
    sums: dict[tuple[str, str], int] = {}
    facts = snapshot.facts
    for group in facts.groups.values():
        for where, offset in group.committed.items():
            key = (group.group_id, where.topic)
            sums[key] = sums.get(key, 0) + (facts.lag(where, offset) or 0)
    for (group_id, topic), lag in sums.items():
        yield Sample(lag, labels(consumergroup=group_id, topic=topic))


def _disk(value: str) -> Read:
    def read(snapshot: Snapshot) -> Iterator[Sample]:
        for node in snapshot.facts.nodes:
            found = getattr(node, value)
            if found >= 0:
                yield Sample(found, labels(node=str(node.node_id)))

    return read


def _topics(snapshot: Snapshot) -> Iterator[Sample]:
    for topic in snapshot.facts.topics.values():
        yield Sample(len(topic.partitions), labels(topic=topic.name))


def _sent(snapshot: Snapshot) -> list[Sample]:
    node = snapshot.node
    if node is None:
        return []
    return [
        Sample(node.sent_by_sendfile, labels(how="sendfile")),
        Sample(node.sent_by_copy, labels(how="copy")),
    ]


def _times(snapshot: Snapshot) -> Iterator[Sample]:
    if snapshot.node is None:
        return
    for name, histogram in sorted(snapshot.node.request_times.items()):
        passed = 0
        bounds = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")
        for bound, count in zip(bounds, histogram.counts, strict=True):
            passed += count
            yield Sample(passed, labels(request=name, le=bound), "_bucket")
        yield Sample(histogram.sum_seconds, labels(request=name), "_sum")
        yield Sample(passed, labels(request=name), "_count")


def _offline(snapshot: Snapshot) -> list[Sample]:
    topics = snapshot.facts.topics.values()
    return [Sample(sum(one.is_offline for topic in topics for one in topic.partitions))]


_GROUP: Final = ("consumergroup", "topic", "partition")
_PARTITION: Final = ("topic", "partition")

METRICS: Final[tuple[Metric, ...]] = (
    Metric(
        "kafka_brokers",
        "gauge",
        "Nodes that are alive.",
        (),
        lambda s: [Sample(len(s.facts.nodes))],
    ),
    Metric("kafka_topic_partitions", "gauge", "Partitions of a topic.", ("topic",), _topics),
    Metric(
        "kafka_topic_partition_current_offset",
        "gauge",
        "The end offset.",
        _PARTITION,
        _of_partitions(lambda p: p.end_offset),
    ),
    Metric(
        "kafka_topic_partition_oldest_offset",
        "gauge",
        "The first offset.",
        _PARTITION,
        _of_partitions(lambda p: p.start_offset),
    ),
    Metric(
        "kafka_topic_partition_leader",
        "gauge",
        "The node that leads it; -1 for none.",
        _PARTITION,
        _of_partitions(lambda p: p.leader),
    ),
    Metric(
        "kafka_topic_partition_replicas",
        "gauge",
        "Replicas it should have.",
        _PARTITION,
        _of_partitions(lambda p: len(p.replicas)),
    ),
    Metric(
        "kafka_topic_partition_in_sync_replica",
        "gauge",
        "Replicas that are in sync.",
        _PARTITION,
        _of_partitions(lambda p: len(p.isr)),
    ),
    Metric(
        "kafka_topic_partition_under_replicated_partition",
        "gauge",
        "1 if a replica is not in sync.",
        _PARTITION,
        _of_partitions(lambda p: p.is_under_replicated),
    ),
    Metric(
        "kafka_log_log_size",
        "gauge",
        "Bytes of a partition's largest replica.",
        _PARTITION,
        _of_partitions(lambda p: p.size_bytes),
    ),
    Metric(
        "kafka_consumergroup_current_offset",
        "gauge",
        "The offset that a group has committed.",
        _GROUP,
        _commits,
    ),
    Metric(
        "kafka_consumergroup_lag", "gauge", "Records after the committed offset.", _GROUP, _lags
    ),
    Metric(
        "kafka_consumergroup_lag_sum",
        "gauge",
        "The same for all partitions of a topic.",
        ("consumergroup", "topic"),
        _lag_sums,
    ),
    Metric(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "gauge",
        "Partitions without a leader.",
        (),
        _offline,
    ),
    Metric(
        "kafka_controller_kafkacontroller_globaltopiccount",
        "gauge",
        "Topics of the cluster.",
        (),
        lambda s: [Sample(len(s.facts.topics))],
    ),
    Metric(
        "kafka_controller_kafkacontroller_globalpartitioncount",
        "gauge",
        "Partitions of the cluster.",
        (),
        lambda s: [Sample(sum(len(t.partitions) for t in s.facts.topics.values()))],
    ),
    Metric(
        "kafka_controller_kafkacontroller_activecontrollercount",
        "gauge",
        "1 on the controller.",
        (),
        _of_node(lambda n: n.is_controller),
        True,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_bytesin_total",
        "counter",
        "Bytes written to a topic's logs here, since the start.",
        ("topic",),
        _of_counts("topic", lambda n: n.appended_bytes),
        True,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_messagesin_total",
        "counter",
        "Records written to a topic's logs here, ever.",
        ("topic",),
        _of_counts("topic", lambda n: n.appended_records),
        True,
    ),
    Metric(
        "kafka_server_brokertopicmetrics_bytesout_total",
        "counter",
        "Bytes of records sent to clients and replicas.",
        (),
        _of_node(lambda n: n.sent_by_sendfile),
        True,
    ),
    Metric(
        "kafka_server_replicamanager_partitioncount",
        "gauge",
        "Replicas on this node.",
        (),
        _of_node(lambda n: n.partition_count),
        True,
    ),
    Metric(
        "kafka_server_replicamanager_leadercount",
        "gauge",
        "Partitions that this node leads.",
        (),
        _of_node(lambda n: n.leader_count),
        True,
    ),
    Metric(
        "kafka_server_replicamanager_underreplicatedpartitions",
        "gauge",
        "Of those, how many miss a replica.",
        (),
        _of_node(lambda n: n.under_replicated),
        True,
    ),
    Metric(
        "kafka_server_replicamanager_underminisrpartitioncount",
        "gauge",
        "Of those, how many refuse acks=all.",
        (),
        _of_node(lambda n: n.under_min_isr),
        True,
    ),
    Metric(
        "kafka_server_replicamanager_offlinereplicacount",
        "gauge",
        "Replicas on a failed disk.",
        (),
        _of_node(lambda n: n.offline),
        True,
    ),
    Metric(
        "kafka_network_requestmetrics_requests_total",
        "counter",
        "Requests answered.",
        ("request",),
        _of_counts("request", lambda n: n.requests),
        True,
    ),
    Metric(
        "kafka_server_socket_server_metrics_connection_count",
        "gauge",
        "Open connections.",
        ("listener",),
        _of_counts("listener", lambda n: n.connections),
        True,
    ),
    Metric(
        "millstream_request_seconds",
        "histogram",
        "From a whole frame to its reply, with waits; sampled: 5 % of the time.",
        ("request",),
        _times,
        True,
    ),
    Metric(
        "millstream_sent_bytes_total",
        "counter",
        "Bytes sent straight from files, or from memory.",
        ("how",),
        _sent,
        True,
    ),
    Metric(
        "millstream_segments",
        "gauge",
        "Segments of all logs.",
        (),
        _of_node(lambda n: n.segment_count),
        True,
    ),
    Metric(
        "millstream_fetches_waiting",
        "gauge",
        "Fetches that wait for records.",
        (),
        _of_node(lambda n: n.fetches_waiting),
        True,
    ),
    Metric(
        "millstream_produces_waiting",
        "gauge",
        "Produces that wait for replicas or for the disk, in all partitions.",
        (),
        _of_node(lambda n: n.produces_waiting),
        True,
    ),
    Metric(
        "millstream_unsynced_records",
        "gauge",
        "Records that a power cut would take from this node.",
        (),
        _of_node(lambda n: n.unsynced_records),
        True,
    ),
    Metric(
        "millstream_share_dead_letters_total",
        "counter",
        "Dead letters of a share group that this node has written, since the start.",
        ("consumergroup",),
        _of_counts("consumergroup", lambda n: n.dead_letters),
        True,
    ),
    Metric(
        "millstream_loop_lag_seconds",
        "gauge",
        "How late the event loop ran the last timer.",
        (),
        _of_node(lambda n: n.loop_lag_seconds),
        True,
    ),
    Metric(
        "millstream_disk_total_bytes",
        "gauge",
        "Size of a node's disk.",
        ("node",),
        _disk("disk_total_bytes"),
    ),
    Metric(
        "millstream_disk_usable_bytes",
        "gauge",
        "Free space of a node's disk.",
        ("node",),
        _disk("disk_usable_bytes"),
    ),
    Metric(
        "process_resident_memory_bytes",
        "gauge",
        "Memory of the process.",
        (),
        _of_node(lambda n: n.resident_bytes),
        True,
    ),
    Metric(
        "process_cpu_seconds_total",
        "counter",
        "Processor time of the process.",
        (),
        _of_node(lambda n: n.cpu_seconds),
        True,
    ),
    Metric(
        "process_open_fds",
        "gauge",
        "Open files and sockets.",
        (),
        _of_node(lambda n: n.open_files),
        True,
    ),
)
