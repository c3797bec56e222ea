"""Covers console/metrics/table.py, console/metrics/exposition.py, console/metrics/alerts.py,
console/metrics/dashboard.py, console/metrics/documentation.py, console/node.py,
cli/generate_metrics.py."""

import json
import re
from pathlib import Path

from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from millstream.cli.generate_metrics import alerts, grafana
from millstream.console.facts import ClusterFacts
from millstream.console.metrics.alerts import ALERTS
from millstream.console.metrics.dashboard import PANELS
from millstream.console.metrics.documentation import page
from millstream.console.metrics.exposition import expose
from millstream.console.metrics.table import METRICS, Snapshot, labels
from tests.support.console_node import Browser, ConsoleNode

PROJECT = Path(__file__).parents[3]
# Of Prometheus itself.
BUILT_IN = {"up"}


def test_a_node_exposes_every_metric_that_has_a_value(web: Browser, topic: str) -> None:
    answer = web.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert families["kafka_brokers"].samples[0].value == 1
    ends = [
        sample.value
        for sample in families["kafka_topic_partition_current_offset"].samples
        if sample.labels["topic"] == topic
    ]
    assert ends == [5, 5]
    written = {
        sample.labels["topic"]: sample.value
        for sample in families["kafka_server_brokertopicmetrics_messagesin"].samples
    }
    assert written[topic] == 10
    requests = {
        sample.labels["request"]: sample.value
        for sample in families["kafka_network_requestmetrics_requests"].samples
    }
    assert requests["Metadata"] > 0
    names = {metric.name.removesuffix("_total") for metric in METRICS}
    # Groups, dead letters and samples of times may not be there yet.
    optional = {name for name in names if "consumergroup" in name}
    optional |= {"millstream_request_seconds", "millstream_share_dead_letters"}
    assert names - families.keys() <= optional


def test_a_console_alone_has_the_metrics_of_the_cluster(console_node: ConsoleNode) -> None:
    with ConsoleNode(bootstrap=console_node.bootstrap) as alone:
        text = alone.browser.get("/metrics").text
    assert "kafka_brokers 1" in text
    assert "process_cpu_seconds_total" not in text


def test_bytes_written_are_counted(web: Browser, topic: str) -> None:
    def count() -> float:
        name = "kafka_server_brokertopicmetrics_bytesin_total"
        pattern = rf'{name}{{topic="{topic}"}} (\S+)'
        found = re.search(pattern, web.get("/metrics").text)
        return float(found[1]) if found else 0.0

    before = count()
    web.call(f"/topics/{topic}/produce", key="k", value="x" * 5000)
    assert 5000 < count() - before < 6000


def test_labels_are_escaped() -> None:
    assert labels(topic='a"b\\c\nd') == 'topic="a\\"b\\\\c\\nd"'
    text = expose(Snapshot(ClusterFacts(0, "", -1, [], {}), None))
    assert text.startswith("# HELP kafka_brokers")


def metric_names(query: str) -> set[str]:
    found = set(re.findall(r"\b((?:kafka|millstream|process)_\w+|up(?=\{))", query))
    return {re.sub(r"_bucket$", "", name) for name in found}


def test_alerts_and_panels_use_metrics_that_exist() -> None:
    known = {metric.name for metric in METRICS} | BUILT_IN
    queries = [alert.query for alert in ALERTS]
    queries += [query for panel in PANELS for query, _ in panel.queries]
    for query in queries:
        assert metric_names(query)
        assert metric_names(query) <= known


def test_the_documentation_is_current() -> None:
    assert (PROJECT / "docs" / "metrics.md").read_text() == page(), (
        "run python -m millstream.console.metrics.documentation"
    )


def test_the_commands_print_what_other_programs_read() -> None:
    board = CliRunner().invoke(grafana)
    assert len(json.loads(board.output)["panels"]) == len(PANELS)
    rules = CliRunner().invoke(alerts).output
    assert rules.startswith("groups:\n")
    assert rules.count("- alert:") == len(ALERTS)
