"""`millstream generate grafana` and `alerts`: files for what watches a node."""

import json

import click

from millstream.cli.output import echo


@click.command()
def grafana() -> None:
    """Print a Grafana dashboard, to import as JSON."""
    from millstream.console.metrics.dashboard import dashboard

    echo(json.dumps(dashboard(), indent=2))


@click.command()
def alerts() -> None:
    """Print alert rules for Prometheus."""
    from millstream.console.metrics.alerts import alert_rules

    echo(alert_rules().rstrip())
