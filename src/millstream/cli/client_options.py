"""Client options of a command: `-X name=value` and a file, for any secured Kafka.

Names are Kafka's, or librdkafka's as kcat takes them. Every client of a command gets them: the
library's in its own names, ours as `Security`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from millstream.cli.failure import CommandFailed, ExitCode
from millstream.cli.secret_options import refuse_secret

if TYPE_CHECKING:
    from millstream.client.security import Security

F = TypeVar("F", bound=Callable[..., object])

BOOTSTRAP: Final = "bootstrap.servers"
_INSTEAD: Final = "Write it into the file of --command-config or MILLSTREAM_CLIENT_CONFIG"
_META: Final = "millstream.client_options"
# Of a file; the rest of it is for other programs.
_OF_FILES: Final = ("security.", "sasl.", "ssl.", "client.id", BOOTSTRAP)
# Ours alone, or in librdkafka under another name.
_NOT_LIBRDKAFKA: Final = (
    "sasl.jaas.config",
    "sasl.oauthbearer.token.endpoint.url",
    "ssl.truststore.",
    "ssl.keystore.",
    "ssl.endpoint.identification.algorithm",
    "ssl.enabled.protocols",
    "ssl.protocol",
)
_PKCS12_ENDINGS: Final = (".p12", ".pfx")
_RENAMED: Final = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}


def client_option(*file_flags: str) -> Callable[[F], F]:
    """Adds `-X`, and a file under `file_flags`, to a command. `client_options` reads them."""

    def add(command: F) -> F:
        command = click.option(
            *file_flags,
            metavar="FILE",
            envvar="MILLSTREAM_CLIENT_CONFIG",
            type=click.Path(path_type=Path),
            expose_value=False,
            is_eager=True,
            callback=_take_file,
            help="Client options, such as Kafka's client.properties; also from "
            "MILLSTREAM_CLIENT_CONFIG.",
        )(command)
        return click.option(
            "-X",
            "settings_of_clients",
            metavar="NAME=VALUE",
            multiple=True,
            expose_value=False,
            is_eager=True,
            callback=_take_settings,
            help="One client option; repeat it for more. Secrets are refused here, where everybody "
            "can read them: sasl.password='${file:PATH}', or '${env:NAME}'.",
        )(command)

    return add


def _take_file(context: click.Context, parameter: click.Parameter, file: Path | None) -> None:
    if file is None:
        return
    options = read_client_file(file)
    # What -X says counts more, whichever came first.
    context.meta[_META] = {**options, **context.meta.get(_META, {})}


def read_client_file(file: Path) -> dict[str, str]:
    """The options for clients in a file, secrets not resolved. Raises CommandFailed."""
    # Here and below, imported late: help is quick.
    from millstream.config import ConfigError
    from millstream.config.files import read_option_file

    try:
        found = read_option_file(file)
    except ConfigError as problem:
        raise CommandFailed(str(problem), exit_code=ExitCode.USAGE) from None
    return {name: value for name, value in found.items() if name.startswith(_OF_FILES)}


def options_of_file(file: Path | None) -> dict[str, str]:
    """Those of a client file alone; none without one. Raises CommandFailed."""
    if file is None:
        return {}
    from millstream.config import ConfigError
    from millstream.config.secrets import resolved

    try:
        return {name: resolved(name, value) for name, value in read_client_file(file).items()}
    except ConfigError as problem:
        raise CommandFailed(str(problem), exit_code=ExitCode.USAGE) from None


def security_of_file(file: Path | None) -> "Security":
    """Raises CommandFailed."""
    return security_of_options(options_of_file(file))


def security_of_options(options: Mapping[str, str]) -> "Security":
    """For our own connections; plain without options. Raises CommandFailed."""
    from millstream.client.security import PLAINTEXT, SecurityError, read_security

    if not options:
        return PLAINTEXT
    try:
        return read_security(kafka_names(options))
    except SecurityError as problem:
        raise CommandFailed(str(problem), exit_code=ExitCode.USAGE) from None


def _take_settings(
    context: click.Context, parameter: click.Parameter, settings: tuple[str, ...]
) -> None:
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"-X takes NAME=VALUE, not {name!r}")
        refuse_secret("-X", name.strip(), value, _INSTEAD)
        context.meta[_META] = {**context.meta.get(_META, {}), name.strip(): value}


@contextmanager
def other_client_options(options: Mapping[str, str]) -> Iterator[None]:
    """Clients that are made inside get these options alone: for a command with two clusters."""
    context = click.get_current_context()
    before, context.meta[_META] = context.meta.get(_META), _Alone(options)
    try:
        yield
    finally:
        context.meta[_META] = before or {}


class _Alone(dict[str, str]):
    """Options that those of the profile in use are not added to."""


def client_options() -> dict[str, str]:
    """Those of the command that runs: of -X, then of the file, then of the profile.

    Raises CommandFailed."""
    from millstream.cli.profiles import chosen_options

    context = click.get_current_context(silent=True)
    given: dict[str, str] = {} if context is None else context.meta.get(_META, {})
    found = given if context is None or isinstance(given, _Alone) else {**chosen_options(), **given}
    if not found:
        return {}
    from millstream.config import ConfigError
    from millstream.config.secrets import resolved

    try:
        return {name: resolved(name, value) for name, value in found.items()}
    except ConfigError as problem:
        raise CommandFailed(str(problem), exit_code=ExitCode.USAGE) from None


def security_of_command() -> "Security":
    """For our own connections. Raises CommandFailed."""
    return security_of_options(client_options())


def kafka_names(options: Mapping[str, str]) -> dict[str, str]:
    """The same options as Kafka's own clients would take them."""
    found = dict(options)
    if "sasl.mechanisms" in found:
        found.setdefault("sasl.mechanism", found.pop("sasl.mechanisms"))
    username, password = found.pop("sasl.username", None), found.pop("sasl.password", None)
    if username is not None and password is not None:
        name, secret = (
            value.replace("\\", "\\\\").replace('"', '\\"') for value in (username, password)
        )
        line = f'LoginModule required username="{name}" password="{secret}";'
        found.setdefault("sasl.jaas.config", line)
    if "ssl.ca.location" in found:
        found.setdefault("ssl.truststore.location", found.pop("ssl.ca.location"))
        found.setdefault("ssl.truststore.type", "PEM")
    for ours, theirs in _RENAMED.items():
        location = theirs.removesuffix(".pem") + ".location"
        if theirs in found:
            found.setdefault(ours, found.pop(theirs))
        elif location in found and theirs != "ssl.ca.pem":
            found.setdefault(ours, _read(found.pop(location)))
    if found.get("ssl.endpoint.identification.algorithm") == "none":
        found["ssl.endpoint.identification.algorithm"] = ""
    return found


def librdkafka_names(options: Mapping[str, str]) -> dict[str, str]:
    """The same options as confluent-kafka takes them. Raises CommandFailed."""
    found = {name: value for name, value in options.items() if not name.startswith(_NOT_LIBRDKAFKA)}
    found.pop(BOOTSTRAP, None)
    for ours, theirs in _RENAMED.items():
        if ours in options:
            found[theirs] = options[ours]
    if "sasl.jaas.config" in options and options.get("sasl.mechanism", "") != "OAUTHBEARER":
        from millstream.security.sasl.jaas import parse_jaas

        try:
            login = parse_jaas(options["sasl.jaas.config"]).options
        except ValueError as problem:
            raise CommandFailed(f"sasl.jaas.config: {problem}", exit_code=ExitCode.USAGE) from None
        found["sasl.username"], found["sasl.password"] = (
            login.get("username", ""),
            login.get("password", ""),
        )
    found.update(_stores(options))
    if "ssl.endpoint.identification.algorithm" in options:
        wanted = options["ssl.endpoint.identification.algorithm"].strip()
        found["ssl.endpoint.identification.algorithm"] = wanted or "none"
    return found


def _stores(options: Mapping[str, str]) -> dict[str, str]:
    found = {}
    truststore = options.get("ssl.truststore.location")
    keystore = options.get("ssl.keystore.location", "")
    kind = options.get("ssl.keystore.type", "").upper()
    if truststore:
        found["ssl.ca.location"] = truststore
    if keystore and (kind == "PKCS12" or keystore.endswith(_PKCS12_ENDINGS)):
        found["ssl.keystore.location"] = keystore
        found["ssl.keystore.password"] = options.get("ssl.keystore.password", "")
    elif keystore:
        # One PEM file with both.
        found["ssl.certificate.location"] = found["ssl.key.location"] = keystore
    return found


def _read(location: str) -> str:
    try:
        return Path(location).read_text()
    except OSError as problem:
        raise CommandFailed(f"{location}: {problem.strerror}", exit_code=ExitCode.USAGE) from None
