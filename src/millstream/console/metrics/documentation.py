"""docs/metrics.md, from the tables: run this module to write it."""

from pathlib import Path

from millstream.console.metrics.alerts import ALERTS
from millstream.console.metrics.table import METRICS

_HEAD = """# Metrics

The console of a node serves `/metrics` for Prometheus, `/healthz` (the process is alive) and
`/readyz` (it can serve). Start it with `millstream broker --console 127.0.0.1:8080`. A console that
runs alone (`millstream console`) has only the metrics of the cluster, not those of a node.

`/readyz` answers 503 with the reason if the data directory failed, if the node is fenced, if
ZooKeeper has not answered it for a third of `zookeeper.session.timeout.ms` (6 s by default), or if
the cluster does not answer.

```yaml
scrape_configs:
  - job_name: millstream
    static_configs: [{ targets: ["127.0.0.1:8080"] }]
```

`millstream generate grafana` prints a dashboard to import, `millstream generate alerts` the rules
below. A console with a login wants `basic_auth` in the scrape config, with a user that may describe
the cluster. `millstream broker --log-format json` writes the log as JSON, an object in each line.

Metrics that clients push to a node (KIP-714; see [the console](console.md)) are exposed by that
node under names that begin with `kafka_client_`: `org.apache.kafka.producer.request.rate` is
`kafka_client_producer_request_rate`, with the labels `client_id` and `client_instance_id` and those
of the client. Of histograms there are `_sum` and `_count`. Values that count from the previous
push are left out.

This page is generated from the table in `src/millstream/console/metrics/table.py`.

| metric | type | labels | of | meaning |
|---|---|---|---|---|
"""

_ALERTS = """
## Alerts

| alert | when | for | severity |
|---|---|---|---|
"""


def page() -> str:
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(each.labels)} "
        f"| {'node' if each.is_of_node else 'cluster'} | {each.help} |\n"
        for each in METRICS
    ]
    alerts = [
        f"| {each.name} | `{each.query}` | {each.lasting} | {each.severity} |\n" for each in ALERTS
    ]
    return _HEAD + "".join(rows) + _ALERTS + "".join(alerts)


if __name__ == "__main__":
    Path("docs/metrics.md").write_text(page())
