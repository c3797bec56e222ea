"""A click group that imports a command's module only when that command runs.

`millstream --help` lists every command without importing one: the one-line help is in the
table beside the module's name.
"""

import importlib
from collections.abc import Mapping
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
        command = getattr(importlib.import_module(row.module), row.attribute)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        # click would turn a closed pipe into a silent exit before `main` sees it.
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise OutputClosed from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.summary) for name, row in self._table.items()])


class AliasGroup(click.Group):
    """A group that accepts `ls` for `list`, as people type it."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, "list" if cmd_name == "ls" else cmd_name)
