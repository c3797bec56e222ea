"""`millstream cluster`: start a cluster on this machine, describe it, size it."""

import click

from millstream.cli.lazy import AliasGroup, LazyCommand

_COMMANDS = {
    "adopt": LazyCommand(
        "millstream.cli.cluster_adopt", "adopt", "Move a standalone node's topics to ZooKeeper."
    ),
    "advise": LazyCommand(
        "millstream.cli.cluster_advise", "advise_command", "Recommend a number of nodes."
    ),
    "describe": LazyCommand(
        "millstream.cli.cluster_describe", "describe_cluster", "Show nodes and problems."
    ),
    "start": LazyCommand("millstream.cli.cluster_start", "start", "Run a cluster on this machine."),
}


@click.group(cls=AliasGroup, table=_COMMANDS)
def cluster() -> None:
    """Start, describe and size a cluster of several nodes."""
