"""Secrets do not belong on a command line, which everybody on the machine can read."""

import click

from millstream.cli.failure import CommandFailed, ExitCode

_SECRET_WORDS = (
    *("password", "passphrase", "secret", "jaas"),
    *("keystore.key", "ssl.key.pem", "private.key.pem"),
)


def is_secret(name: str) -> bool:
    """Whether the value of a client option is one, by Kafka's names and librdkafka's."""
    return any(word in name for word in _SECRET_WORDS)


def refuse_secret(where: str, name: str, value: str, instead: str) -> None:
    """For `name=value` of a command line; `where` names the flag, `instead` another place for it.

    The error does not repeat the value. Raises CommandFailed.
    """
    # Imported late: help is quick.
    from millstream.config.secrets import is_reference

    if value and is_secret(name) and not is_reference(value):
        raise CommandFailed(
            f"{where} {name}: everybody on this machine can read a command line. {instead}, or use "
            f"{name}='${{file:PATH}}' or '${{env:NAME}}'",
            exit_code=ExitCode.USAGE,
        )


def refuse_login_in_url(
    context: click.Context, parameter: click.Parameter, url: str | None
) -> str | None:
    """A callback of an option that takes URLs: a password may come from its variable alone.

    Raises CommandFailed."""
    if url is None or parameter.name is None or "@" not in url:
        return url
    from urllib.parse import urlsplit

    source = context.get_parameter_source(parameter.name)
    if (
        source is click.core.ParameterSource.COMMANDLINE
        and ":" in urlsplit(url).netloc.rpartition("@")[0]
    ):
        raise CommandFailed(
            f"{parameter.opts[0]}: everybody on this machine can read a command line. Put a URL "
            f"with a password into {parameter.envvar}",
            exit_code=ExitCode.USAGE,
        )
    return url
