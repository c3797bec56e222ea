"""`millstream acl`: who may do what, on any Kafka with an authorizer."""

from typing import Final

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.confirming import ask_before_deleting
from millstream.cli.connection import Cluster, check
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.output import print_json, print_outcome, print_table
from millstream.security.acl import (
    ANY_HOST,
    CLUSTER_NAME,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from millstream.wire.apis.create_acls import AclCreation, CreateAclsRequest
from millstream.wire.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from millstream.wire.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse

_NAMES: Final = {
    operation.name.lower().replace("_", "-"): operation for operation in tuple(Operation)[2:]
}
Row = tuple[str, str, str, str, str, str, str]
_KEYS: Final = ("type", "name", "pattern", "principal", "host", "operation", "permission")


def _resource_options(command: click.Command) -> click.Command:
    """Which resource: at most one of them."""
    for option in (
        click.Option(["--topic"], help="A topic, or * for all."),
        click.Option(["--group"], help="A consumer group, or *."),
        click.Option(["--transactional-id"], help="A transactional id, or *."),
        click.Option(["--cluster"], is_flag=True, help="The cluster itself."),
        click.Option(["--prefix"], is_flag=True, help="The name is a prefix of names."),
    ):
        command.params.append(option)
    return command


@click.group()
def acl() -> None:
    """Add, list and delete ACLs: who may do what, and from where."""


@_resource_options
@acl.command()
@click.option("--principal", required=True, help="User:name, or User:* for everybody.")
@click.option(
    "--operation",
    "operations",
    multiple=True,
    required=True,
    type=click.Choice(list(_NAMES), case_sensitive=False),
    help="Several are possible.",
)
@click.option("--host", default=ANY_HOST, help="An address or, on Millstream, a network.")
@click.option("--deny", is_flag=True, help="Deny it instead. A denial wins over everything.")
@json_option
@bootstrap_option
def add(
    principal: str,
    operations: tuple[str, ...],
    host: str,
    deny: bool,
    as_json: bool,
    bootstrap: str,
    **resource: str | bool | None,
) -> None:
    """Allow or deny operations on a resource.

    Example: millstream acl add --principal User:ann --topic logs --operation read
    """
    resource_type, name, pattern_type = _resource(resource)
    if resource_type is ResourceType.ANY or name is None:
        raise CommandFailed(
            "no resource: use --topic, --group, --transactional-id or --cluster",
            exit_code=ExitCode.USAGE,
        )
    creations = [
        AclCreation(
            resource_type=resource_type,
            resource_name=name,
            resource_pattern_type=(
                PatternType.LITERAL if pattern_type is PatternType.ANY else pattern_type
            ),
            principal=principal,
            host=host,
            operation=_NAMES[operation],
            permission_type=Permission.DENY if deny else Permission.ALLOW,
        )
        for operation in operations
    ]
    with Cluster(bootstrap) as cluster:
        answer = cluster.ask(cluster.first, CreateAclsRequest(creations=creations))
    for result in answer.results:
        check(result.error_code, "ACL", result.error_message)
    print_outcome(f"added {len(creations)} ACLs", {"acls": len(creations)}, as_json=as_json)


@_resource_options
@acl.command("list")
@click.option("--principal", help="Only of this principal.")
@json_option
@bootstrap_option
def list_acls(
    principal: str | None, as_json: bool, bootstrap: str, **resource: str | bool | None
) -> None:
    """List ACLs; with a name, those that apply to it, including prefixes and *."""
    resource_type, name, pattern_type = _resource(resource)
    if name is not None and pattern_type is PatternType.LITERAL:
        pattern_type = PatternType.MATCH
    request = DescribeAclsRequest(
        resource_type_filter=resource_type,
        resource_name_filter=name,
        pattern_type_filter=pattern_type,
        principal_filter=principal,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    with Cluster(bootstrap) as cluster:
        answer = cluster.ask(cluster.first, request)
    check(answer.error_code, "ACLs", answer.error_message)
    rows = _rows(answer)
    if as_json:
        print_json([dict(zip(_KEYS, row, strict=True)) for row in rows])
        return
    print_table(tuple(key.upper() for key in _KEYS), rows)


@_resource_options
@acl.command()
@click.option("--principal", help="Only of this principal.")
@click.option("--operation", type=click.Choice(list(_NAMES), case_sensitive=False))
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@bootstrap_option
def delete(
    principal: str | None,
    operation: str | None,
    yes: bool,
    as_json: bool,
    bootstrap: str,
    **resource: str | bool | None,
) -> None:
    """Delete the ACLs that are named. Clients that rely on them are stopped at once."""
    resource_type, name, pattern_type = _resource(resource)
    if resource_type is ResourceType.ANY and principal is None:
        raise CommandFailed(
            "this would delete all ACLs: name a resource or --principal", exit_code=ExitCode.USAGE
        )
    what = " ".join(filter(None, [resource_type.name.lower(), name, principal]))
    if not yes:
        ask_before_deleting("ACLs", [what], "the permissions that they give")
    wanted = DeleteAclsFilter(
        resource_type_filter=resource_type,
        resource_name_filter=name,
        pattern_type_filter=pattern_type,
        principal_filter=principal,
        host_filter=None,
        operation=Operation.ANY if operation is None else _NAMES[operation],
        permission_type=Permission.ANY,
    )
    with Cluster(bootstrap) as cluster:
        answer = cluster.ask(cluster.first, DeleteAclsRequest(filters=[wanted]))
    [result] = answer.filter_results
    check(result.error_code, "ACLs", result.error_message)
    if not result.matching_acls:
        raise CommandFailed(f"no ACL matches {what}")
    deleted = len(result.matching_acls)
    print_outcome(f"deleted {deleted} ACLs", {"acls": deleted}, as_json=as_json)


def _resource(
    options: dict[str, str | bool | None],
) -> tuple[ResourceType, str | None, PatternType]:
    """What the options name; a name in a filter is a literal one unless it is a prefix."""
    named: list[tuple[ResourceType, str]] = []
    for key, kind in (
        ("topic", ResourceType.TOPIC),
        ("group", ResourceType.GROUP),
        ("transactional_id", ResourceType.TRANSACTIONAL_ID),
    ):
        if isinstance(name := options.get(key), str):
            named.append((kind, name))
    if options.get("cluster"):
        named.append((ResourceType.CLUSTER, CLUSTER_NAME))
    if len(named) > 1:
        raise CommandFailed("name one resource, not several", exit_code=ExitCode.USAGE)
    if not named:
        return ResourceType.ANY, None, PatternType.ANY
    pattern_type = PatternType.PREFIXED if options.get("prefix") else PatternType.LITERAL
    return *named[0], pattern_type


def _rows(answer: DescribeAclsResponse) -> list[Row]:
    return sorted(
        (
            ResourceType(resource.resource_type).name.lower(),
            resource.resource_name,
            PatternType(resource.pattern_type).name.lower(),
            one.principal,
            one.host,
            Operation(one.operation).name.lower().replace("_", "-"),
            Permission(one.permission_type).name.lower(),
        )
        for resource in answer.resources
        for one in resource.acls
    )
