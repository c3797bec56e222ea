"""`millstream cluster`: start a cluster on this machine, describe, size and operate it."""

import click

from millstream.cli.lazy import AliasGroup, LazyCommand

_COMMANDS = {
    "adopt": LazyCommand(
        "millstream.cli.cluster_adopt", "adopt", "Move a standalone node's topics to ZooKeeper."
    ),
    "advise": LazyCommand(
        "millstream.cli.cluster_advise", "advise_command", "Recommend a number of nodes."
    ),
    "decommission": LazyCommand(
        "millstream.cli.cluster_rebalance", "decommission", "Move all replicas off a node."
    ),
    "describe": LazyCommand(
        "millstream.cli.cluster_describe", "describe_cluster", "Show nodes and problems."
    ),
    "elect": LazyCommand(
        "millstream.cli.cluster_elect", "elect", "Have the preferred replicas lead."
    ),
    "health": LazyCommand(
        "millstream.cli.cluster_health", "health", "Say what is wrong and what to do."
    ),
    "reassign": LazyCommand(
        "millstream.cli.cluster_reassign", "reassign", "Move partitions to the nodes you name."
    ),
    "rebalance": LazyCommand(
        "millstream.cli.cluster_rebalance", "rebalance", "Spread bytes and leaders over nodes."
    ),
    "restart": LazyCommand(
        "millstream.cli.cluster_restart", "restart", "Restart nodes one after the other."
    ),
    "start": LazyCommand("millstream.cli.cluster_start", "start", "Run a cluster on this machine."),
}


@click.group(cls=AliasGroup, table=_COMMANDS)
def cluster() -> None:
    """Start, describe, size and operate a cluster of several nodes."""
