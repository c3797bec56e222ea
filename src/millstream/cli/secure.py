"""`millstream secure`: certificates, an administrator, and the files that use them, in one step."""

import os
import re
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from millstream.cli.bootstrap import json_option
from millstream.cli.failure import CommandFailed
from millstream.cli.output import echo, print_json

try:
    from millstream.security.certificate_authority import issue, new_authority
except ImportError as missing:
    raise CommandFailed(
        "certificates need cryptography: pip install 'millstream[security]'"
    ) from missing

_AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 365
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_PASSWORD_BYTES: Final = 24
_MECHANISM: Final = "SCRAM-SHA-512"
_LOGIN_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_ADMIN: Final = "admin"
# As this user, nodes log in at each other.
_NODE: Final = "node"
_ZOOKEEPER: Final = "zookeeper"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one node runs. Without a host, only this machine reaches it."""

    node_id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host or 'localhost'}:{self.port}"


def check_hosts(
    context: click.Context, parameter: click.Parameter, hosts: tuple[str, ...]
) -> tuple[str, ...]:
    for host in hosts:
        if not re.fullmatch(r"[A-Za-z0-9.:_-]+|\*\.[A-Za-z0-9._-]+", host):
            raise click.BadParameter(f"{host!r} is neither a host name nor an address")
    return hosts


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    callback=check_hosts,
    help="A name or address that clients use for the node. With --nodes: one for each node.",
)
@click.option("--nodes", type=click.IntRange(1, 99), default=1, help="How many nodes.")
@click.option("--port", type=click.IntRange(1, 65000), default=9092, help="The first node's port.")
@click.option(
    "--zookeeper",
    metavar="HOST:PORT/PATH",
    default="localhost:2181",
    show_default=True,
    help="The ZooKeeper of several nodes.",
)
@json_option
def secure(
    directory: Path, hosts: tuple[str, ...], nodes: int, port: int, zookeeper: str, as_json: bool
) -> None:
    """Create a CA, certificates, an administrator with a random password, and config files.

    DIR must not exist yet or be empty. Only its owner can read what is in it. Without --host the
    node listens on 127.0.0.1 only.
    """
    places = _places(hosts, nodes, port)
    _create_directory(directory)
    folder = directory.resolve()
    passwords = {
        name: secrets.token_urlsafe(_PASSWORD_BYTES) for name in (_ADMIN, _NODE, _ZOOKEEPER)
    }
    write_certificates(folder, places, hosts if nodes == 1 else ())
    for place in places:
        text = server_properties(
            folder, place, passwords, zookeeper=zookeeper if nodes > 1 else None
        )
        write_private(folder / f"{_file_name(place, places)}.properties", text.encode())
    client = client_properties(folder, places, passwords[_ADMIN])
    write_private(folder / "client.properties", client.encode())
    if as_json:
        files = sorted(str(path) for path in folder.iterdir())
        print_json({"directory": str(folder), "files": files})
    else:
        _print_commands(folder, places)


def _places(hosts: Sequence[str], nodes: int, port: int) -> list[Place]:
    if nodes == 1:
        return [Place(1, hosts[0] if hosts else "", port)]
    if hosts and len(hosts) != nodes:
        raise click.UsageError(f"--nodes {nodes} takes {nodes} times --host, or none")
    return [
        # On one machine, each needs a port of its own.
        Place(number + 1, hosts[number] if hosts else "", port if hosts else port + number)
        for number in range(nodes)
    ]


def _file_name(place: Place, places: Sequence[Place]) -> str:
    return "server" if len(places) == 1 else f"server-{place.node_id}"


def _create_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_empty = not any(directory.iterdir())
    except OSError as problem:
        raise CommandFailed(f"cannot create {directory}: {problem.strerror}") from None
    if not is_empty:
        raise CommandFailed(
            f"{directory} is not empty, and nothing is overwritten. Choose another directory; "
            "`millstream certs renew` renews certificates"
        )
    directory.chmod(0o700)


def write_private(path: Path, content: bytes) -> None:
    """A new file that only its owner can read. Raises CommandFailed if it exists."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as problem:
        raise CommandFailed(f"cannot create {path}: {problem.strerror}") from None
    with open(descriptor, "wb") as file:
        file.write(content)


def write_certificates(folder: Path, places: Sequence[Place], more_hosts: Sequence[str]) -> None:
    now = datetime.now(UTC)
    authority = new_authority("Millstream CA", now=now, days=_AUTHORITY_DAYS)
    write_private(folder / "ca.key", authority.key)
    write_private(folder / "ca.pem", authority.certificate)
    for place in places:
        own = [place.host] if place.host else []
        hosts = [*_LOCAL, socket.gethostname(), *own, *more_hosts]
        name = _file_name(place, places)
        made = issue(authority, name, hosts=hosts, now=now, days=CERTIFICATE_DAYS)
        write_private(folder / f"{name}.pem", made.key + made.certificate)


def server_properties(
    folder: Path, place: Place, passwords: dict[str, str], *, zookeeper: str | None
) -> str:
    """A node's config file. `zookeeper` is for a node of a cluster."""
    is_alone = zookeeper is None
    name = "server" if is_alone else f"server-{place.node_id}"
    listened = "" if place.host else "127.0.0.1"
    users = [_ADMIN] if is_alone else [_ADMIN, _NODE]
    initial = ";".join(f"{_MECHANISM}=[name={user},password={passwords[user]}]" for user in users)
    lines = [
        f"node.id={place.node_id}",
        f"log.dirs={folder / f'data-{place.node_id}'}",
        f"listeners=SASL_SSL://{listened}:{place.port}",
        f"advertised.listeners=SASL_SSL://{place.address}",
        "",
        f"ssl.keystore.location={folder / name}.pem",
        "ssl.keystore.type=PEM",
        f"ssl.truststore.location={folder / 'ca.pem'}",
        "ssl.truststore.type=PEM",
        "",
        f"sasl.enabled.mechanisms={_MECHANISM}",
        "# Used at the first start only. Then you can delete it; `millstream user` changes users.",
        f"sasl.scram.initial.users={initial}",
        "",
        f"authorizer.class.name={_AUTHORIZER}",
        f"super.users=User:{_ADMIN}",
    ]
    if zookeeper is not None:
        jaas = login(_NODE, passwords[_NODE])
        lines += [
            "",
            f"zookeeper.connect={zookeeper}",
            "# Only nodes with this credential can change what they store in ZooKeeper.",
            f"millstream.zookeeper.digest={_NODE}:{passwords[_ZOOKEEPER]}",
            "security.inter.broker.protocol=SASL_SSL",
            f"sasl.mechanism.inter.broker.protocol={_MECHANISM}",
            f"listener.name.sasl_ssl.{_MECHANISM.lower()}.sasl.jaas.config={jaas}",
            "default.replication.factor=3",
            "min.insync.replicas=2",
        ]
    return "\n".join(lines) + "\n"


def client_properties(folder: Path, places: Sequence[Place], password: str) -> str:
    lines = [
        f"bootstrap.servers={_bootstrap(places)}",
        "security.protocol=SASL_SSL",
        f"sasl.mechanism={_MECHANISM}",
        f"sasl.jaas.config={login(_ADMIN, password)}",
        f"ssl.truststore.location={folder / 'ca.pem'}",
        "ssl.truststore.type=PEM",
    ]
    return "\n".join(lines) + "\n"


def login(username: str, password: str) -> str:
    return f'{_LOGIN_MODULE} required username="{username}" password="{password}";'


def _bootstrap(places: Sequence[Place]) -> str:
    return ",".join(place.address for place in places)


def _print_commands(folder: Path, places: Sequence[Place]) -> None:
    echo(f"Created {folder}: a CA, certificates, the user {_ADMIN}, and config files.")
    if len(places) > 1:
        echo("Copy ca.pem and the two files of each node to its machine, into the same directory.")
    echo("Start:")
    for place in places:
        config = folder / f"{_file_name(place, places)}.properties"
        echo(f"  millstream broker --config {config}")
    echo("Use:")
    echo(f"  export MILLSTREAM_CLIENT_CONFIG={folder / 'client.properties'}")
    echo("  millstream topic create events")
    echo("  millstream user list")
