"""`millstream quota`: how much users, client ids and addresses may use, on any Kafka."""

from collections.abc import Sequence
from typing import Final

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.connection import Cluster, check
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.output import counted, print_json, print_outcome, print_table
from millstream.wire.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredQuotaEntity,
    AlteredQuotas,
    QuotaOperation,
)
from millstream.wire.apis.describe_client_quotas import DescribeClientQuotasRequest

_DEFAULT: Final = "<default>"


def _entity_options(command: click.Command) -> click.Command:
    """Whose quota: a user, a client id, both, or an address."""
    for option in (
        click.Option(["--user"], help=f"A user, or {_DEFAULT} for those without an own quota."),
        click.Option(["--client-id"], help=f"A client id, or {_DEFAULT}."),
        click.Option(["--ip"], help=f"A client's address, or {_DEFAULT}."),
    ):
        command.params.append(option)
    return command


@click.group()
def quota() -> None:
    """Set, list and delete quotas of users, client ids and addresses."""


@_entity_options
@quota.command("set")
@click.argument("quotas", nargs=-1, required=True, metavar="NAME=VALUE...")
@json_option
@bootstrap_option
def set_quotas(
    quotas: tuple[str, ...], as_json: bool, bootstrap: str, **entity: str | None
) -> None:
    """Set quotas. Clients that exceed one are slowed down.

    \b
    producer_byte_rate, consumer_byte_rate: bytes per second, on each node
    request_percentage: of a node's time
    controller_mutation_rate: partitions created and deleted per second
    connection_creation_rate: of an address, per second

    Example: millstream quota set --user ann producer_byte_rate=1000000
    """
    operations = []
    for text in quotas:
        name, equals, value = text.partition("=")
        try:
            number = float(value)
        except ValueError:
            equals, number = "", 0.0
        if not equals:
            raise CommandFailed(f"{text!r}: write it as name=number", exit_code=ExitCode.USAGE)
        operations.append(QuotaOperation(key=name, value=number, remove=False))
    _alter(bootstrap, entity, operations)
    text = f"set {counted(len(operations), 'quota')} of {_shown(entity)}"
    print_outcome(text, {"quotas": [each.key for each in operations]}, as_json=as_json)


@_entity_options
@quota.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@json_option
@bootstrap_option
def delete(names: tuple[str, ...], as_json: bool, bootstrap: str, **entity: str | None) -> None:
    """Delete quotas.

    Example: millstream quota delete --user ann producer_byte_rate
    """
    operations = [QuotaOperation(key=name, value=0.0, remove=True) for name in names]
    _alter(bootstrap, entity, operations)
    text = f"deleted {counted(len(operations), 'quota')} of {_shown(entity)}"
    print_outcome(text, {"quotas": [each.key for each in operations]}, as_json=as_json)


@quota.command("list")
@json_option
@bootstrap_option
def list_quotas(as_json: bool, bootstrap: str) -> None:
    """List all quotas."""
    with Cluster(bootstrap) as cluster:
        request = DescribeClientQuotasRequest(components=[], strict=False)
        answer = cluster.ask(cluster.first, request)
    check(answer.error_code, "quotas", answer.error_message)
    rows: list[tuple[str, str, str, str, float]] = []
    for entry in answer.entries or ():
        names = {
            one.entity_type: _DEFAULT if one.entity_name is None else one.entity_name
            for one in entry.entity
        }
        user, client_id, ip = (names.get(kind, "") for kind in ("user", "client-id", "ip"))
        rows += [(user, client_id, ip, one.key, one.value) for one in entry.values]
    rows.sort()
    if as_json:
        keys = ("user", "client_id", "ip", "quota", "value")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    table = [(*whose, f"{value:g}") for *whose, value in rows]
    print_table(("USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"), table)


def _alter(
    bootstrap: str, entity: dict[str, str | None], operations: Sequence[QuotaOperation]
) -> None:
    parts = [
        AlteredQuotaEntity(entity_type=kind, entity_name=None if name == _DEFAULT else name)
        for kind, name in _parts(entity)
    ]
    if not parts:
        raise CommandFailed("whose quota? --user, --client-id or --ip", exit_code=ExitCode.USAGE)
    request = AlterClientQuotasRequest(
        entries=[AlteredQuotas(entity=parts, ops=list(operations))], validate_only=False
    )
    with Cluster(bootstrap) as cluster:
        answer = cluster.ask(cluster.first, request)
    for result in answer.entries:
        check(result.error_code, f"quotas of {_shown(entity)}", result.error_message)


def _parts(entity: dict[str, str | None]) -> list[tuple[str, str]]:
    return [(key.replace("_", "-"), name) for key, name in entity.items() if name is not None]


def _shown(entity: dict[str, str | None]) -> str:
    return ", ".join(f"{kind} {name}" for kind, name in _parts(entity))
