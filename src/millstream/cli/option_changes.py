"""Changes of options: checked, shown beside the values of now, and made when the answer is yes."""

from collections.abc import Mapping
from typing import Final

from millstream.cli.cluster_view import TOPIC, change_options
from millstream.cli.confirming import confirm
from millstream.cli.connection import Cluster, check
from millstream.cli.output import counted, print_table
from millstream.cli.secret_options import is_secret
from millstream.client.blocking import Address
from millstream.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribedConfig,
)

SECRET: Final = "(secret)"


def change(
    cluster: Cluster,
    resource_type: int,
    name: str,
    wanted: Mapping[str, str | None],
    *,
    node: Address | None = None,
    whose: str,
    yes: bool,
    is_shown: bool,
) -> None:
    """Raises CommandFailed where the cluster refuses the change or the answer is no. `whose` names
    what has the options, and `is_shown` asks for the plan."""
    change_options(cluster, resource_type, name, wanted, node=node, validate_only=True)
    if is_shown:
        present = {one.name: one for one in described(cluster, resource_type, name, node=node)}
        print_table(["OPTION", "NOW", "THEN"], planned(present, wanted))
    if not yes:
        confirm(f"Change {counted(len(wanted), 'option')} of {whose}?", "changing options")
    change_options(cluster, resource_type, name, wanted, node=node)


def planned(
    present: Mapping[str, DescribedConfig], wanted: Mapping[str, str | None]
) -> list[tuple[str, str | None, str]]:
    """Of each option its name, its value now, and then."""
    rows = []
    for name, value in wanted.items():
        one = present.get(name)
        before = None if one is None else one.value
        then = "(not set here)" if value is None else value
        if is_secret(name) or (one is not None and one.is_sensitive):
            before, then = SECRET, then if value is None else SECRET
        rows.append((name, before, then))
    return rows


def described(
    cluster: Cluster, resource_type: int, name: str, *, node: Address | None = None
) -> list[DescribedConfig]:
    """All options of a topic or of a node; without a name, those of all nodes."""
    resource = DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource])
    [answer] = cluster.ask(node or cluster.first, request).results
    kind = "topic" if resource_type == TOPIC else "node"
    check(answer.error_code, f"{kind} {name}", answer.error_message)
    return answer.configs
