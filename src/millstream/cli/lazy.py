"""A click group that imports a command's module only when that command runs.

`millstream --help` lists every command without importing one: the one-line help is in the
table beside the module's name.
"""

import importlib
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass

import click


class OutputClosed(Exception):
    """The reader of stdout closed it, as `head` does when it has enough."""


@dataclass(frozen=True, slots=True)
class LazyCommand:
    module: str
    attribute: str
    summary: str


class LazyGroup(click.Group):
    """A group whose commands come from a table of `LazyCommand` rows."""

    def __init__(
        self,
        *,
        table: Mapping[str, LazyCommand],
        aliases: Mapping[str, str],
        name: str,
        help: str,  # click's own name for it
        params: list[click.Parameter],
    ) -> None:
        super().__init__(name=name, help=help, params=params)
        self._table = table
        self._aliases = aliases

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = self._table.get(self._aliases.get(cmd_name, cmd_name))
        if row is None:
            return None
        return load(row)

    def invoke(self, ctx: click.Context) -> object:
        # Imported late: help is quick.
        from millstream.cli.log_format import spell_out_warnings

        spell_out_warnings()
        # click would turn a closed pipe into a silent exit before `main` sees it.
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise OutputClosed from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.summary) for name, row in self._table.items()])


class AliasGroup(click.Group):
    """A group that accepts `ls` for `list`, as people type it.

    Commands of its `table` are imported when they run, as those of `LazyGroup`: one that needs
    much should not delay the others.
    """

    def __init__(
        self,
        name: str | None = None,
        commands: MutableMapping[str, click.Command] | None = None,
        *,
        table: Mapping[str, LazyCommand] | None = None,
        # click's own names, for what it passes on
        help: str | None = None,
        params: list[click.Parameter] | None = None,
        callback: Callable[..., object] | None = None,
    ) -> None:
        super().__init__(name, commands, help=help, params=params, callback=callback)
        self._table = dict(table or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._table})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = "list" if cmd_name == "ls" else cmd_name
        row = self._table.get(name)
        return load(row) if row is not None else super().get_command(ctx, name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            row = self._table.get(name)
            rows.append((name, row.summary if row else self.commands[name].get_short_help_str(60)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def load(row: LazyCommand) -> click.Command:
    command = getattr(importlib.import_module(row.module), row.attribute)
    assert isinstance(command, click.Command)
    return command
