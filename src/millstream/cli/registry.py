"""`millstream registry`: a schema registry on any Kafka cluster."""

import asyncio
import importlib.util
import ipaddress
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from millstream.cli.address import parse_address
from millstream.cli.bootstrap import (
    bootstrap_option,
    check_reachable,
    client_settings,
    json_option,
)
from millstream.cli.client_options import security_of_command
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.log_format import TEXT, write_log
from millstream.cli.output import print_line_json
from millstream.cli.serving_loop import ignore_signals, run_loop, stop_on_signals

if TYPE_CHECKING:
    import socket

    from millstream.registry.serving import Guard, RegistryServer

DEFAULT_PORT: Final = 8081
_LIBRARIES: Final = ("fastavro", "google.protobuf", "jsonschema", "starlette", "uvicorn")


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=f"127.0.0.1:{DEFAULT_PORT}",
    show_default=True,
    help="Address to serve on; port 0 picks a free one. An address that other machines reach needs "
    "--users and --certificate, or --insecure.",
)
@click.option(
    "--advertise",
    metavar="URL",
    help="Where other instances reach this one.  [default: the address it listens on]",
)
@click.option("--topic", default="_schemas", show_default=True, help="Where schemas are kept.")
@click.option(
    "--group",
    "group_id",
    default="schema-registry",
    show_default=True,
    help="Instances of one registry have the same.",
)
@click.option(
    "--users",
    "users_file",
    type=click.Path(path_type=Path),
    help="Ask for a login (basic): a file of lines name=password.",
)
@click.option(
    "--certificate",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A PEM file with certificate and key: the registry serves HTTPS.",
)
@click.option(
    "--authority",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A PEM file with what signs the certificates of other instances, if the system does not "
    "trust it.",
)
@click.option("--insecure", is_flag=True, help="Serve other machines without login or HTTPS.")
@json_option
@bootstrap_option
def registry(
    listen: str,
    advertise: str | None,
    topic: str,
    group_id: str,
    users_file: Path | None,
    certificate: Path | None,
    authority: Path | None,
    insecure: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Serve a schema registry with Confluent's REST API until Ctrl-C.

    Several instances with the same --topic and --group are one registry: they elect a leader, and
    each of them answers all requests.
    """
    address = _listen_address(listen)
    if not insecure:
        _check_exposure(
            address[0], has_login=users_file is not None, has_tls=certificate is not None
        )
    # First: its libraries take longer to load than a broker to say that it is not there.
    check_reachable(bootstrap)
    settings = client_settings(bootstrap)
    if not is_installed():
        raise CommandFailed("the registry needs: pip install 'millstream[registry]'")
    from millstream.registry.registry import ClusterAccess, SchemaRegistry
    from millstream.registry.serving import RegistryServer
    from millstream.registry.sockets import listen_on

    write_log(TEXT)
    nodes = [parse_address(each.strip()) for each in bootstrap.split(",")]
    access = ClusterAccess(nodes, settings, security_of_command())
    guard = _guard(users_file, certificate, authority)

    async def serve() -> None:
        schemas = SchemaRegistry(access, topic=topic, group_id=group_id)
        server = RegistryServer(schemas, listen_on(*address), guard=guard, advertised_url=advertise)
        await _serve(server, as_json=as_json)

    try:
        run_loop(serve())
    except ValueError as wrong:
        raise click.UsageError(f"--advertise: {wrong}") from None


async def _serve(server: "RegistryServer", *, as_json: bool) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    await server.start()
    if as_json:
        print_line_json({"registry": server.url})
    else:
        print(f"registry on {server.url}", flush=True)
    await stop.wait()
    await server.stop()
    ignore_signals()


def _listen_address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise click.UsageError(f"--listen takes HOST:PORT, not {text!r}")
    return host.strip("[]") or "0.0.0.0", int(port)


def _check_exposure(host: str, *, has_login: bool, has_tls: bool) -> None:
    """Raises CommandFailed for an address where strangers could change schemas, or passwords could
    be read on the way."""
    try:
        is_own = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_own = False
    if is_own or (has_login and has_tls):
        return
    missing = "HTTPS (--certificate)" if has_login else "login (--users)"
    raise CommandFailed(
        f"other machines reach {host}, and the registry has no {missing}. Add it, or say "
        "--insecure where the network is safe",
        exit_code=ExitCode.USAGE,
    )


def is_installed() -> bool:
    """Are the libraries of the extra `registry` there? They are not loaded."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in _LIBRARIES)
    except ModuleNotFoundError:
        return False


def _guard(users_file: Path | None, certificate: Path | None, authority: Path | None) -> "Guard":
    """Raises StartError and CommandFailed."""
    from millstream.registry.serving import Guard
    from millstream.registry.users import load_users

    return Guard(
        users=None if users_file is None else load_users(users_file),
        tls=None if certificate is None else _server_context(certificate),
        trust=None if authority is None else _client_context(authority),
    )


def _server_context(certificate: Path) -> ssl.SSLContext:
    from millstream.config import ConfigError
    from millstream.security.tls import NO_TRUSTSTORE, Store, TlsOptions, server_context

    store = Store("--certificate", str(certificate), kind="PEM")
    options = TlsOptions(store, NO_TRUSTSTORE, "none", ("TLSv1.2", "TLSv1.3"), ())
    try:
        return server_context(options)
    except ConfigError as problem:
        raise CommandFailed(str(problem)) from None


def _client_context(authority: Path) -> ssl.SSLContext:
    from millstream.config import ConfigError
    from millstream.security.tls import NO_KEYSTORE, Store, client_context

    try:
        return client_context(NO_KEYSTORE, Store("--authority", str(authority), kind="PEM"))
    except ConfigError as problem:
        raise CommandFailed(str(problem)) from None


async def serve_beside(bound: "socket.socket", bootstrap: str, stop: asyncio.Event) -> None:
    """The registry of `millstream dev`, in the process of the node, until `stop`.

    Its libraries load in a thread: the node serves meanwhile, and so do clients wait that connect
    to the socket early."""
    server = await asyncio.to_thread(_make_beside, bound, bootstrap)
    await server.start()
    try:
        await stop.wait()
    finally:
        await server.stop()


def _make_beside(bound: "socket.socket", bootstrap: str) -> "RegistryServer":
    from millstream.registry.registry import ClusterAccess, SchemaRegistry
    from millstream.registry.serving import RegistryServer

    access = ClusterAccess([parse_address(bootstrap)], {"bootstrap.servers": bootstrap})
    return RegistryServer(SchemaRegistry(access), bound)
