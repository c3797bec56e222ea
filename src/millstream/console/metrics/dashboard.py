"""A Grafana dashboard of the metrics, as JSON to import."""

from dataclasses import dataclass
from typing import Final

_WIDTH: Final = 12
_HEIGHT: Final = 8


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    # Queries with the legend of each.
    queries: tuple[tuple[str, str], ...]
    # Grafana's name of the unit.
    unit: str = "short"


PANELS: Final = (
    Panel(
        "Records written per second",
        (
            (
                "sum by (topic) (rate(kafka_server_brokertopicmetrics_messagesin_total[1m]))",
                "{{topic}}",
            ),
        ),
    ),
    Panel(
        "Bytes in and out per second",
        (
            ("sum(rate(kafka_server_brokertopicmetrics_bytesin_total[1m]))", "in"),
            ("sum(rate(kafka_server_brokertopicmetrics_bytesout_total[1m]))", "out"),
        ),
        "Bps",
    ),
    Panel(
        "Lag of groups",
        (("sum by (consumergroup) (kafka_consumergroup_lag)", "{{consumergroup}}"),),
    ),
    Panel(
        "Requests per second",
        (
            (
                "sum by (request) (rate(kafka_network_requestmetrics_requests_total[1m]))",
                "{{request}}",
            ),
        ),
        "reqps",
    ),
    Panel(
        "Request time, 99th percentile",
        (
            (
                "histogram_quantile(0.99, "
                "sum by (le, request) (rate(millstream_request_seconds_bucket[5m])))",
                "{{request}}",
            ),
        ),
        "s",
    ),
    Panel(
        "Partitions in trouble",
        (
            ("max(kafka_controller_kafkacontroller_offlinepartitionscount)", "offline"),
            ("sum(kafka_server_replicamanager_underreplicatedpartitions)", "under-replicated"),
            (
                "sum(kafka_server_replicamanager_underminisrpartitioncount)",
                "below min.insync.replicas",
            ),
        ),
    ),
    Panel(
        "Free disk",
        (("millstream_disk_usable_bytes / millstream_disk_total_bytes", "node {{node}}"),),
        "percentunit",
    ),
    Panel(
        "Records that a power cut would take", (("millstream_unsynced_records", "{{instance}}"),)
    ),
    Panel(
        "Connections",
        (
            (
                "sum by (instance) (kafka_server_socket_server_metrics_connection_count)",
                "{{instance}}",
            ),
        ),
    ),
    Panel("Event loop lag", (("millstream_loop_lag_seconds", "{{instance}}"),), "s"),
    Panel("Memory", (("process_resident_memory_bytes", "{{instance}}"),), "bytes"),
    Panel("Processor", (("rate(process_cpu_seconds_total[1m])", "{{instance}}"),), "percentunit"),
)


def dashboard() -> dict[str, object]:
    return {
        "title": "Millstream",
        "uid": "millstream",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [{"name": "source", "type": "datasource", "query": "prometheus"}],
        },
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


def _panel(number: int, panel: Panel) -> dict[str, object]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": {
            "x": number % 2 * _WIDTH,
            "y": number // 2 * _HEIGHT,
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "expr": query,
                "legendFormat": legend,
                "refId": chr(ord("A") + at),
                "datasource": source,
            }
            for at, (query, legend) in enumerate(panel.queries)
        ],
    }
