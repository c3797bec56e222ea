"""`millstream user`: who can log in by SCRAM, on any Kafka.

The password is salted and hashed here; only the result is sent. Passwords come from a prompt, a
file or the environment, never from the command line, which other users of the machine can see.
"""

import os
import sys
from pathlib import Path
from typing import Final

import click

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.confirming import ask_before_deleting
from millstream.cli.connection import Cluster, check
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.output import JsonValue, echo, print_json, print_outcome, print_table
from millstream.errors import KafkaCode
from millstream.security.sasl.plain import HASHED_WITH
from millstream.security.sasl.scram import (
    HASHES,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES,
    encode_credential,
    new_credential,
    salted_password,
)
from millstream.security.sasl.scram_changes import MECHANISM_NUMBERS
from millstream.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from millstream.wire.apis.describe_user_scram_credentials import (
    DescribedScramUser,
    DescribeUserScramCredentialsRequest,
)

_PASSWORD_VARIABLE: Final = "MILLSTREAM_USER_PASSWORD"
_DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"
_DEFAULT_ITERATIONS: Final = 8192

_mechanism_option = click.option(
    "--mechanism",
    type=click.Choice(list(HASHES), case_sensitive=False),
    default=_DEFAULT_MECHANISM,
    show_default=True,
)
_iterations_option = click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=_DEFAULT_ITERATIONS,
    show_default=True,
    help="More make guessing slower, and logging in too.",
)
_password_option = click.option(
    "--password-file",
    type=click.Path(path_type=Path),
    help=f"The first line is the password. Without it: {_PASSWORD_VARIABLE}, or a prompt.",
)


@click.group()
def user() -> None:
    """Add, list and delete users that log in by SCRAM, and change their passwords."""


@user.command()
@click.argument("name")
@_mechanism_option
@_iterations_option
@_password_option
@json_option
@bootstrap_option
def add(
    name: str,
    mechanism: str,
    iterations: int,
    password_file: Path | None,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Add a user, or another mechanism to a user.

    Example: millstream user add alice
    """
    with Cluster(bootstrap) as cluster:
        if mechanism in _mechanisms_of(cluster, name):
            raise CommandFailed(
                f"user {name} has {mechanism} already; `millstream user password` changes it"
            )
        _set_password(cluster, name, mechanism, iterations, _read_password(password_file))
    value: JsonValue = {"user": name, "mechanisms": [mechanism]}
    print_outcome(f"added user {name} ({mechanism})", value, as_json=as_json)


@user.command()
@click.argument("name")
@_mechanism_option
@_iterations_option
@_password_option
@json_option
@bootstrap_option
def password(
    name: str,
    mechanism: str,
    iterations: int,
    password_file: Path | None,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Change a password. Connections that used the old one are closed."""
    with Cluster(bootstrap) as cluster:
        if mechanism not in _mechanisms_of(cluster, name):
            raise CommandFailed(
                f"user {name} does not have {mechanism}; `millstream user add` adds it"
            )
        _set_password(cluster, name, mechanism, iterations, _read_password(password_file))
    value: JsonValue = {"user": name, "mechanisms": [mechanism]}
    print_outcome(f"changed the password of {name} ({mechanism})", value, as_json=as_json)


@user.command("list")
@json_option
@bootstrap_option
def list_users(as_json: bool, bootstrap: str) -> None:
    """List users, their mechanisms and iterations."""
    with Cluster(bootstrap) as cluster:
        answer = cluster.ask(cluster.first, DescribeUserScramCredentialsRequest(users=None))
    check(answer.error_code, "users", answer.error_message)
    names = {number: name for name, number in MECHANISM_NUMBERS.items()}
    rows = sorted(
        (one.user, names.get(info.mechanism, str(info.mechanism)), info.iterations)
        for one in answer.results
        for info in one.credential_infos
    )
    if as_json:
        keys = ("user", "mechanism", "iterations")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    print_table(("USER", "MECHANISM", "ITERATIONS"), rows)


@user.command()
@click.argument("name")
@click.option(
    "--mechanism",
    type=click.Choice(list(HASHES), case_sensitive=False),
    help="Only this one. Default: all.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
@bootstrap_option
def delete(name: str, mechanism: str | None, yes: bool, as_json: bool, bootstrap: str) -> None:
    """Delete a user. Its connections are closed."""
    if not yes:
        ask_before_deleting("a user", [name], "its credentials")
    with Cluster(bootstrap) as cluster:
        found = _mechanisms_of(cluster, name)
        wanted = found if mechanism is None else [each for each in found if each == mechanism]
        if not wanted:
            raise CommandFailed(f"user {name} does not exist, or does not have {mechanism}")
        deletions = [
            ScramCredentialDeletion(name=name, mechanism=MECHANISM_NUMBERS[each]) for each in wanted
        ]
        _alter(cluster, AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[]))
    value: JsonValue = {"user": name, "mechanisms": wanted}
    print_outcome(f"deleted user {name} ({', '.join(wanted)})", value, as_json=as_json)


@user.command("hash")
@_iterations_option
@_password_option
@json_option
def hash_password(iterations: int, password_file: Path | None, as_json: bool) -> None:
    """Print a password's hash, for the file of `sasl.plain.users.file`."""
    salt = os.urandom(SALT_BYTES)
    secret = _read_password(password_file)
    text = encode_credential(new_credential(HASHED_WITH, secret, salt=salt, iterations=iterations))
    if as_json:
        print_json({"hash": text})
    else:
        echo(text)


def _mechanisms_of(cluster: Cluster, name: str) -> list[str]:
    request = DescribeUserScramCredentialsRequest(users=[DescribedScramUser(name=name)])
    answer = cluster.ask(cluster.first, request)
    check(answer.error_code, "users", answer.error_message)
    (found,) = answer.results
    if found.error_code == KafkaCode.RESOURCE_NOT_FOUND:
        return []
    check(found.error_code, f"user {name}", found.error_message)
    numbers = {info.mechanism for info in found.credential_infos}
    return [each for each, number in MECHANISM_NUMBERS.items() if number in numbers]


def _set_password(
    cluster: Cluster, name: str, mechanism: str, iterations: int, secret: str
) -> None:
    salt = os.urandom(SALT_BYTES)
    upsertion = ScramCredentialUpsertion(
        name=name,
        mechanism=MECHANISM_NUMBERS[mechanism],
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(mechanism, secret, salt, iterations),
    )
    _alter(cluster, AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion]))


def _alter(cluster: Cluster, request: AlterUserScramCredentialsRequest) -> None:
    for result in cluster.ask(cluster.first, request).results:
        check(result.error_code, f"user {result.user}", result.error_message)


def _read_password(file: Path | None) -> str:
    if file is not None:
        try:
            found = file.read_text().partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as problem:
            raise CommandFailed(f"{file}: {problem}", exit_code=ExitCode.USAGE) from None
    elif _PASSWORD_VARIABLE in os.environ:
        found = os.environ[_PASSWORD_VARIABLE]
    elif sys.stdin.isatty():
        found = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise CommandFailed(
            f"no password: without a terminal, use --password-file or {_PASSWORD_VARIABLE}",
            exit_code=ExitCode.USAGE,
        )
    if not found:
        raise CommandFailed("the password is empty", exit_code=ExitCode.USAGE)
    return str(found)
