"""`millstream generate`: files for other programs that run or watch a node."""

import click

from millstream.cli.lazy import AliasGroup, LazyCommand

_COMMANDS = {
    "systemd": LazyCommand(
        "millstream.cli.generate_service", "systemd", "A unit that runs a node as a service."
    ),
    "compose": LazyCommand(
        "millstream.cli.generate_service", "compose", "A docker-compose file with one node."
    ),
    "dockerfile": LazyCommand(
        "millstream.cli.generate_service", "dockerfile", "An image that runs a node."
    ),
    "grafana": LazyCommand(
        "millstream.cli.generate_metrics", "grafana", "A Grafana dashboard, to import as JSON."
    ),
    "alerts": LazyCommand(
        "millstream.cli.generate_metrics", "alerts", "Alert rules for Prometheus."
    ),
}


@click.group(cls=AliasGroup, table=_COMMANDS)
def generate() -> None:
    """Print files for other programs that run or watch a node."""
