"""`millstream console`: the web console alone, for any Kafka cluster."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

import click

from millstream.cli.bootstrap import bootstrap_option, check_reachable, json_option
from millstream.cli.client_options import client_options, options_of_file, security_of_options
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.output import print_line_json
from millstream.cli.schemas import check_registry, registry_option
from millstream.cli.serving_loop import ignore_signals, run_loop, stop_on_signals

if TYPE_CHECKING:
    from millstream.broker.broker import Broker
    from millstream.client.security import Security
    from millstream.console.asking import Address
    from millstream.console.serving import ConsoleServer

F = TypeVar("F", bound=Callable[..., object])


def pipeline_option(command: F) -> F:
    """Add `--pipeline` to a command that serves a console."""
    return click.option(
        "--pipeline",
        "pipeline_home",
        type=click.Path(path_type=Path, file_okay=False),
        help="The home of a pipeline: the console shows its progress, tables and reports.",
    )(command)


def login_option(flag: str) -> Callable[[F], F]:
    return click.option(
        flag,
        is_flag=True,
        help="People log in with a user of the cluster, and may do here what that user may.",
    )


def certificate_option(flag: str) -> Callable[[F], F]:
    return click.option(
        flag,
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False, exists=True),
        help="A PEM file with certificate and key: the console serves HTTPS.",
    )


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8080",
    show_default=True,
    help="Address to serve on; port 0 picks a free one. An address that other machines reach needs"
    " --login and --certificate.",
)
@click.option("--read-only", is_flag=True, help="Serve no page that changes anything.")
@login_option("--login")
@certificate_option("--certificate")
@registry_option("The schema registry that records are decoded with.")
@pipeline_option
@json_option
@bootstrap_option
def console(
    listen: str,
    read_only: bool,
    login: bool,
    certificate: Path | None,
    registry_url: str | None,
    pipeline_home: Path | None,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Serve the web console of a cluster until Ctrl-C.

    What needs the files of a node is absent; `millstream broker --console` has it.
    """
    address = listen_address("--listen", listen)
    # First: its libraries take longer to load than a broker to say that it is not there.
    check_reachable(bootstrap)
    serving = import_serving()
    check_registry("--registry", registry_url)
    from millstream.console.asking import parse_address

    nodes = [parse_address(each) for each in bootstrap.split(",")]
    server = serving.console_of_cluster(
        nodes,
        address,
        security=_security(client_options(), login=login),
        is_read_only=read_only,
        pipeline_home=pipeline_home,
        login=login,
        certificate=certificate,
        registry_url=registry_url,
    )
    run_loop(_serve(server, as_json=as_json))


async def _serve(server: "ConsoleServer", *, as_json: bool) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    await server.start()
    if as_json:
        print_line_json({"console": server.url})
    else:
        print(f"console on {server.url}", flush=True)
    await stop.wait()
    await server.stop()
    ignore_signals()


Beside = Callable[["Broker"], AbstractAsyncContextManager[str | None]]


def console_beside(
    option: str,
    listen: str | None,
    *,
    is_read_only: bool = False,
    pipeline_home: Path | None = None,
    client_file: Path | None = None,
    login: bool = False,
    certificate: Path | None = None,
    registry_url: str | None = None,
) -> Beside:
    """Serves a node's console while a block runs, and gives its URL; nothing without `listen`.

    Fails before the node starts if the address is wrong or a library is missing.
    """
    if listen is None:
        return lambda node: nullcontext()
    address = listen_address(option, listen)
    serving = import_serving()
    check_registry("--console-registry", registry_url)
    security = _security(options_of_file(client_file), login=login)

    @asynccontextmanager
    async def beside(node: "Broker") -> AsyncIterator[str]:
        server = serving.console_of_node(
            node,
            address,
            security=security,
            is_read_only=is_read_only,
            pipeline_home=pipeline_home,
            login=login,
            certificate=certificate,
            registry_url=registry_url,
        )
        await server.start()
        try:
            yield server.url
        finally:
            await server.stop()

    return beside


def _security(options: dict[str, str], *, login: bool) -> "Security":
    """How the console connects. With a login, the options only say how to reach the brokers and
    which mechanism to use: the name and password are entered. Raises CommandFailed."""
    if not login:
        return security_of_options(options)
    if not options.get("security.protocol", "").upper().startswith("SASL"):
        raise CommandFailed(
            "a login needs a listener with SASL: give the console client options with "
            "security.protocol=SASL_SSL, such as the client.properties of `millstream secure`",
            exit_code=ExitCode.USAGE,
        )
    entered = {"sasl.username": "entered", "sasl.password": "entered"}
    without = {name: value for name, value in options.items() if name != "sasl.jaas.config"}
    return security_of_options({"sasl.mechanism": "SCRAM-SHA-512", **without, **entered})


def listen_address(option: str, text: str) -> "Address":
    """Raises UsageError."""
    from millstream.console.asking import parse_address as parse

    try:
        return parse(text, default_port=8080)
    except ValueError as wrong:
        raise click.UsageError(f"{option}: {wrong}") from None


def import_serving() -> ModuleType:
    """Raises CommandFailed if the console's libraries are not installed."""
    try:
        from millstream.console import serving
    except ImportError as error:
        raise CommandFailed(
            f"the console needs {error.name}: pip install 'millstream[console]'"
        ) from error
    return serving
