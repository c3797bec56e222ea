"""`millstream completion`: the script that lets a shell complete commands and names."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_MILLSTREAM_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script for a shell: commands, options, and the names of topics and groups.

    Example, in ~/.bashrc: eval "$(millstream completion bash)"
    """
    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    click.echo(found(root, {}, "millstream", _VARIABLE).source())
