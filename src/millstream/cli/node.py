"""`millstream node`: the options of a running node."""

import click

from millstream.cli.bootstrap import bootstrap_option_beside_config, json_option
from millstream.cli.cluster_view import BROKER, parse_settings
from millstream.cli.connection import Cluster
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.lazy import AliasGroup
from millstream.cli.option_changes import SECRET, change, described
from millstream.cli.output import echo, print_json, print_table
from millstream.cli.secret_options import is_secret, refuse_secret
from millstream.client.blocking import Address
from millstream.errors import ConfigError

_SOURCES = {1: "topic", 2: "node", 3: "all-nodes", 4: "config-file", 5: "default", 6: "logger"}
_DEFAULT_SOURCE = 5


@click.group(cls=AliasGroup)
def node() -> None:
    """Show and change the options of running nodes."""


@node.command()
@click.argument("node_id", type=int, required=False, metavar="[NODE]")
@click.option("-c", "--config", "settings", multiple=True, metavar="NAME=VALUE", help="Set it.")
@click.option(
    "-d", "--delete", "deleted", multiple=True, metavar="NAME", help="Return to the start value."
)
@click.option("--all", "all_nodes", is_flag=True, help="Of all nodes, instead of one.")
@click.option("--defaults", is_flag=True, help="Also show options that have their default.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
@bootstrap_option_beside_config
def config(
    node_id: int | None,
    settings: tuple[str, ...],
    deleted: tuple[str, ...],
    all_nodes: bool,
    defaults: bool,
    yes: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Show the options of a node, or change them while it runs.

    A change shows the values now and then, and asks first.

    Examples:

      millstream node config 1

      millstream node config 1 -c leader.replication.throttled.rate=50000000

      millstream node config --all -c min.insync.replicas=2
    """
    if all_nodes == (node_id is not None):
        raise CommandFailed("name a node, or --all of them", exit_code=ExitCode.USAGE)
    wanted = _with_secrets(parse_settings(settings, deleted))
    name = "" if node_id is None else str(node_id)
    whose = "all nodes" if node_id is None else f"node {node_id}"
    with Cluster(bootstrap) as cluster:
        address = _address(cluster, node_id)
        if wanted:
            change(
                *(cluster, BROKER, name, wanted),
                node=address,
                whose=whose,
                yes=yes,
                is_shown=not as_json,
            )
        else:
            found = described(cluster, BROKER, name, node=address)
    if wanted:
        if as_json:
            changed = [(key, _shown(key, value)) for key, value in wanted.items()]
            print_json([{"name": key, "value": value, "source": None} for key, value in changed])
            return
        for key, value in wanted.items():
            text = "deleted" if value is None else f"= {_shown(key, value)}"
            echo(f"{whose}: {key} {text}", err=True)
        return
    shown = [one for one in found if defaults or one.config_source != _DEFAULT_SOURCE]
    rows = [
        (one.name, SECRET if one.is_sensitive else one.value, _SOURCES.get(one.config_source))
        for one in sorted(shown, key=lambda one: one.name)
    ]
    if as_json:
        print_json([{"name": n, "value": v, "source": s} for n, v, s in rows])
    else:
        print_table(["NAME", "VALUE", "SET-BY"], rows)


def _with_secrets(wanted: dict[str, str | None]) -> dict[str, str | None]:
    """The values of secrets, which stand in a file or in the environment. Raises CommandFailed."""
    # Imported late: a look at the options is quick.
    from millstream.config.secrets import resolved

    found = dict(wanted)
    for name, value in wanted.items():
        if value is not None and is_secret(name):
            refuse_secret("-c", name, value, "Set it in the node's file")
            try:
                found[name] = resolved(name, value)
            except ConfigError as problem:
                raise CommandFailed(str(problem), exit_code=ExitCode.USAGE) from None
    return found


def _shown(name: str, value: str | None) -> str | None:
    return value if value is None or not is_secret(name) else SECRET


def _address(cluster: Cluster, node_id: int | None) -> Address:
    """Only a node itself knows its options."""
    if node_id is None:
        return cluster.first
    nodes = {one.broker_id: one for one in cluster.live_nodes()}
    if node_id not in nodes:
        alive = ", ".join(map(str, nodes))
        raise CommandFailed(f"node {node_id} is not alive; alive are {alive}")
    return Address(nodes[node_id].host, nodes[node_id].port)
