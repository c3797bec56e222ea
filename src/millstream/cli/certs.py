"""`millstream certs`: what certificates there are, and new ones from the CA of `secure`."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from millstream.cli.bootstrap import json_option
from millstream.cli.failure import CommandFailed
from millstream.cli.output import JsonValue, print_json, print_outcome, print_table
from millstream.cli.secure import CERTIFICATE_DAYS, check_hosts, write_private
from millstream.security import certificate_authority
from millstream.security.certificate_authority import CertificateFacts, KeyAndCertificate

_DIRECTORY = click.argument(
    "directory", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False)
)
_DAYS = click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=CERTIFICATE_DAYS,
    show_default=True,
    help="How long it is valid.",
)
_SOON_DAYS: Final = 30


@click.group()
def certs() -> None:
    """Show, issue and renew certificates in a directory of `millstream secure`."""


@certs.command()
@click.argument(
    "paths",
    metavar="PATH...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True),
)
@json_option
def show(paths: tuple[Path, ...], as_json: bool) -> None:
    """List the certificates in PEM files, or in all PEM files of a directory."""
    found = [(path, facts) for path in _pem_files(paths) for facts in _read(path)]
    now = datetime.now(UTC)
    if as_json:
        print_json([_as_json(path, facts) for path, facts in found])
        return
    print_table(
        ("FILE", "SUBJECT", "EXPIRES", "LEFT", "SERIAL", "HOSTS"),
        [
            (
                path.name,
                facts.subject,
                facts.not_after.date().isoformat(),
                _left(facts, now),
                f"{facts.serial:x}",
                ",".join(facts.hosts) or "-",
            )
            for path, facts in found
        ],
    )


@certs.command()
@_DIRECTORY
@click.argument("name")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    callback=check_hosts,
    help="A host name or address of a server. Without any, the certificate is a client's.",
)
@_DAYS
@json_option
def issue(directory: Path, name: str, hosts: tuple[str, ...], days: int, as_json: bool) -> None:
    """Write DIR/NAME.pem: a new key, and a certificate for CN=NAME from the CA in DIR."""
    if not name or name.startswith(".") or set(name) & {"/", "\\", "\0"}:
        raise click.UsageError(f"{name!r} cannot be the name of a file")
    path = directory / f"{name}.pem"
    if path.exists():
        raise CommandFailed(f"{path} exists; `millstream certs renew` replaces it")
    made = certificate_authority.issue(
        _authority(directory), name, hosts=hosts, now=datetime.now(UTC), days=days
    )
    write_private(path, made.key + made.certificate)
    print_outcome(f"Created {path}.", {"path": str(path)}, as_json=as_json)


@certs.command()
@_DIRECTORY
@click.argument("name")
@_DAYS
@json_option
def renew(directory: Path, name: str, days: int, as_json: bool) -> None:
    """Replace the key and the certificate in DIR/NAME.pem, for the same name and hosts.

    A node that uses the file shows the new certificate within seconds, to new connections.
    """
    path = directory / f"{name}.pem"
    if not path.exists():
        raise CommandFailed(f"there is no {path}; `millstream certs issue` creates one")
    old = _read(path)[0]
    if old.is_authority:
        raise CommandFailed(f"{path} is a CA: a new one needs `millstream secure` again")
    made = certificate_authority.issue(
        _authority(directory), old.common_name, hosts=old.hosts, now=datetime.now(UTC), days=days
    )
    new = directory / f".{name}.{os.getpid()}.new"
    write_private(new, made.key + made.certificate)
    # In one step: a node may read the file at any moment.
    new.replace(path)
    print_outcome(f"Renewed {path}.", {"path": str(path)}, as_json=as_json)


def _authority(directory: Path) -> KeyAndCertificate:
    try:
        key, certificate = ((directory / name).read_bytes() for name in ("ca.key", "ca.pem"))
    except OSError as problem:
        raise CommandFailed(
            f"{directory} has no CA ({problem.filename}: {problem.strerror}); "
            "`millstream secure DIR` creates one"
        ) from None
    return certificate_authority.KeyAndCertificate(key, certificate)


def _pem_files(paths: tuple[Path, ...]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(path.glob("*.pem"))
        else:
            yield path


def _read(path: Path) -> list[CertificateFacts]:
    try:
        return certificate_authority.read_certificates(path.read_bytes())
    except OSError as problem:
        raise CommandFailed(f"cannot read {path}: {problem.strerror}") from None
    except ValueError:
        raise CommandFailed(f"{path} has no certificate in PEM") from None


def _left(facts: CertificateFacts, now: datetime) -> str:
    days = (facts.not_after - now).days
    if days < 0:
        return "EXPIRED"
    return f"{days}d{'!' if days < _SOON_DAYS else ''}"


def _as_json(path: Path, facts: CertificateFacts) -> dict[str, JsonValue]:
    return {
        "file": str(path),
        "subject": facts.subject,
        "issuer": facts.issuer,
        "serial": f"{facts.serial:x}",
        "not_after": facts.not_after.isoformat(),
        "hosts": list(facts.hosts),
        "is_authority": facts.is_authority,
    }
