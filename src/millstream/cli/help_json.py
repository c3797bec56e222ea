"""`millstream --help-json`: all commands and their options, for programs."""

import json
from collections.abc import Mapping

import click

JsonTree = dict[str, object]


def print_tree(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(json.dumps(command_tree(context.command, context), indent=2))
        context.exit()


def command_tree(command: click.Command, context: click.Context) -> JsonTree:
    """The name, help and parameters of a command, and its commands."""
    tree: JsonTree = {
        "name": command.name,
        "help": _plain(command.help),
        "parameters": [_parameter(each) for each in command.params],
    }
    if isinstance(command, click.Group):
        commands = []
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            inner = click.Context(found, info_name=name, parent=context)
            commands.append({**command_tree(found, inner), "name": name})
        tree["commands"] = commands
    return tree


def _parameter(parameter: click.Parameter) -> Mapping[str, object]:
    option = parameter if isinstance(parameter, click.Option) else None
    default = parameter.default
    is_plain = isinstance(default, str | int | float | bool)
    return {
        "name": parameter.name,
        "kind": "argument" if option is None else "option",
        "flags": [] if option is None else list(option.opts),
        "metavar": parameter.metavar,
        "type": parameter.type.name,
        "choices": list(getattr(parameter.type, "choices", [])),
        "required": parameter.required,
        "multiple": parameter.nargs == -1 or (option is not None and option.multiple),
        "is_flag": option is not None and option.is_flag,
        "default": default if is_plain else None,
        "help": None if option is None else _plain(option.help),
    }


def _plain(text: str | None) -> str | None:
    return None if text is None else " ".join(text.split())
