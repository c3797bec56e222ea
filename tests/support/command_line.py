"""Run the `millstream` command as a user does: its own process, real exit codes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import click

from millstream.cli.main import root

_SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class Ran:
    exit_code: int
    output: str
    errors: str


def run_millstream(
    *arguments: str,
    stdin: str = "",
    bootstrap: str | None = None,
    seconds_max: float = _SECONDS_MAX,
) -> Ran:
    environment = {k: v for k, v in os.environ.items() if not k.endswith("BOOTSTRAP_SERVERS")}
    # A developer's own profiles are not part of any test.
    environment.setdefault("MILLSTREAM_CONFIG", os.devnull)
    if bootstrap is not None:
        environment["KAFKA_BOOTSTRAP_SERVERS"] = bootstrap
    done = subprocess.run(
        [sys.executable, "-m", "millstream", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
        env=environment,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def all_commands() -> dict[str, click.Command]:
    """Every command that does something, by its words, such as `topic list`."""
    return dict(_leaves(root, click.Context(root), ""))


def find_command(name: str) -> click.Command:
    """Imports what defines it, as calling it would, and no other command."""
    found: click.Command = root
    context = click.Context(root)
    for word in name.split():
        assert isinstance(found, click.Group)
        command = found.get_command(context, word)
        assert command is not None, name
        found, context = command, click.Context(command, parent=context)
    return found


def _leaves(
    command: click.Command, context: click.Context, path: str
) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _leaves(found, click.Context(found, parent=context), f"{path} {name}".strip())
