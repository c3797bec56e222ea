"""Alert rules for Prometheus, as the YAML file that it loads."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    query: str
    # How long it must be so.
    lasting: str
    severity: str
    summary: str


ALERTS: Final = (
    Alert(
        "MillstreamNodeSilent",
        'up{job="millstream"} == 0',
        "30s",
        "critical",
        "{{ $labels.instance }} does not answer Prometheus.",
    ),
    Alert(
        "MillstreamNodeDead",
        "kafka_brokers < max_over_time(kafka_brokers[1h])",
        "30s",
        "critical",
        "The cluster has {{ $value }} nodes, fewer than in the last hour.",
    ),
    Alert(
        "MillstreamPartitionOffline",
        "kafka_controller_kafkacontroller_offlinepartitionscount > 0",
        "15s",
        "critical",
        "{{ $value }} partitions have no leader.",
    ),
    Alert(
        "MillstreamUnderReplicated",
        "sum(kafka_topic_partition_under_replicated_partition) > 0",
        "2m",
        "warning",
        "{{ $value }} partitions miss a replica.",
    ),
    Alert(
        "MillstreamBelowMinInsync",
        "kafka_server_replicamanager_underminisrpartitioncount > 0",
        "30s",
        "critical",
        "{{ $value }} partitions refuse acks=all on {{ $labels.instance }}.",
    ),
    Alert(
        "MillstreamDiskFull",
        "millstream_disk_usable_bytes / millstream_disk_total_bytes < 0.1",
        "1m",
        "critical",
        "Node {{ $labels.node }} has {{ $value | humanizePercentage }} of its disk left.",
    ),
    Alert(
        "MillstreamLag",
        "sum by (consumergroup, topic) (kafka_consumergroup_lag) > 100000",
        "5m",
        "warning",
        "{{ $labels.consumergroup }} is {{ $value }} records behind on {{ $labels.topic }}.",
    ),
    Alert(
        "MillstreamLoopSlow",
        "millstream_loop_lag_seconds > 0.5",
        "1m",
        "warning",
        "The event loop of {{ $labels.instance }} is {{ $value }} s late.",
    ),
)


def alert_rules() -> str:
    lines = ["groups:", "  - name: millstream", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {_quoted(alert.query)}",
            f"        for: {alert.lasting}",
            f"        labels: {{ severity: {alert.severity} }}",
            f"        annotations: {{ summary: {_quoted(alert.summary)} }}",
        ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """YAML's single quotes: nothing inside has a meaning but the quote itself."""
    return "'" + text.replace("'", "''") + "'"
