"""Names of topics and groups as arguments, which a shell can complete from the cluster."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    _NameType = click.ParamType[str]
else:
    # Generic only in newer versions of click.
    _NameType = click.ParamType


class _Name(_NameType):
    def __init__(self, name: str, find: Callable[[str], list[str]]) -> None:
        self.name = name
        self._find = find

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            found = self._find(_bootstrap(ctx))
        except Exception:
            # A shell has no place for an error, whatever it is.
            return []
        # A shell prints what it completes, and some shells take a line break for the next name.
        return [
            CompletionItem(name)
            for name in sorted(found)
            if name.startswith(incomplete) and name.isprintable()
        ]


def _bootstrap(context: click.Context) -> str:
    """As the command would find it: options, environment, profile, default."""
    option = next(each for each in context.command.params if each.name == "bootstrap")
    value = context.params.get("bootstrap") or option.value_from_envvar(context)
    return str(value or option.get_default(context))


def _topics(bootstrap: str) -> list[str]:
    from millstream.cli.connection import Cluster

    with Cluster(bootstrap) as cluster:
        return [topic.name for topic in cluster.metadata().topics if topic.name]


def _groups(bootstrap: str) -> list[str]:
    from millstream.cli.connection import Cluster
    from millstream.cli.group_view import list_groups

    with Cluster(bootstrap) as cluster:
        return [group.group_id for group in list_groups(cluster)]


TOPIC = _Name("topic", _topics)
GROUP = _Name("group", _groups)
