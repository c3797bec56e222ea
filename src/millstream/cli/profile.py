"""`millstream profile`: names for clusters and how to log in there."""

import os

import click

from millstream.cli.bootstrap import json_option
from millstream.cli.failure import CommandFailed
from millstream.cli.lazy import AliasGroup
from millstream.cli.output import JsonValue, print_json, print_outcome, print_table
from millstream.cli.profiles import (
    Profiles,
    load_profiles,
    profile_options,
    profiles_file,
    save_profiles,
    shown_value,
)
from millstream.cli.secret_options import refuse_secret


@click.group(cls=AliasGroup)
def profile() -> None:
    """Keep client options under names, and choose one.

    Options come from flags first, then from the environment, then from the profile.
    MILLSTREAM_PROFILE chooses a profile for one command or shell.
    """


def _current(profiles: Profiles) -> str | None:
    return os.environ.get("MILLSTREAM_PROFILE") or profiles.current


@profile.command("list")
@json_option
def list_profiles(as_json: bool) -> None:
    """List the profiles; * marks the one in use."""
    profiles = load_profiles()
    current = _current(profiles)
    rows = [
        (name, name == current, options.get("bootstrap.servers"))
        for name, options in profiles.options.items()
    ]
    if as_json:
        print_json([{"name": n, "current": c, "bootstrap": b} for n, c, b in rows])
    else:
        print_table(
            ["CURRENT", "NAME", "BOOTSTRAP"], [("*" if c else None, n, b) for n, c, b in rows]
        )


@profile.command()
@click.argument("name")
@json_option
def use(name: str, as_json: bool) -> None:
    """Use a profile from now on."""
    profiles = load_profiles()
    profile_options(profiles, name)
    profiles.current = name
    save_profiles(profiles)
    print_outcome(f"using {name}", {"name": name}, as_json=as_json)


@profile.command("set")
@click.argument("name")
@click.argument("settings", nargs=-1, required=True, metavar="OPTION=VALUE...")
@json_option
def set_options(name: str, settings: tuple[str, ...], as_json: bool) -> None:
    """Set client options of a profile; an empty value removes one. Creates the profile.

    Secrets are refused here, where everybody can read them: use sasl.password='${file:PATH}' or
    '${env:NAME}', or write them into the file of the profiles.

    Example: millstream profile set prod bootstrap.servers=kafka:9092 security.protocol=SSL
    """
    profiles = load_profiles()
    options = dict(profiles.options.get(name, {}))
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise click.UsageError(f"an option is NAME=VALUE, not {setting!r}")
        instead = f"Write it into {profiles_file()}"
        refuse_secret("profile set", key.strip(), value, instead)
        if value:
            options[key.strip()] = value
        else:
            options.pop(key.strip(), None)
    profiles.options[name] = options
    if profiles.current is None:
        profiles.current = name
    save_profiles(profiles)
    if as_json:
        print_json({"name": name, "options": _shown(options)})


def _shown(options: dict[str, str]) -> dict[str, JsonValue]:
    return {key: shown_value(key, value) for key, value in options.items()}


@profile.command()
@click.argument("name", required=False)
@json_option
def show(name: str | None, as_json: bool) -> None:
    """Show the options of a profile, or of the one in use. Secrets are hidden."""
    profiles = load_profiles()
    name = name or _current(profiles)
    if name is None:
        raise CommandFailed("no profile is in use; `millstream profile list` shows the profiles")
    options = _shown(profile_options(profiles, name))
    if as_json:
        print_json({"name": name, "options": options})
    else:
        print_table(["OPTION", "VALUE"], list(options.items()))


@profile.command()
@click.argument("name")
@json_option
def delete(name: str, as_json: bool) -> None:
    """Delete a profile."""
    profiles = load_profiles()
    profile_options(profiles, name)
    del profiles.options[name]
    if profiles.current == name:
        profiles.current = None
    save_profiles(profiles)
    print_outcome(f"deleted {name}", {"name": name}, as_json=as_json)
