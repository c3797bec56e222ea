"""Pages of the site that are made from the code: commands, and the Python API."""

import inspect
import re

import click
from mkdocs.structure.pages import Page

from millstream.cli.main import root
from millstream.testing import plugin
from millstream.testing.broker import Broker


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    source = page.file.src_uri
    if source == "reference/cli.md":
        return markdown + "\n" + cli_reference()
    if source == "reference/python_api.md":
        return markdown + "\n" + python_reference()
    return markdown


def cli_reference() -> str:
    context = click.Context(root, info_name="millstream", terminal_width=100)
    return "\n".join(_describe(root, context))


def _describe(command: click.Command, context: click.Context) -> list[str]:
    lines = []
    if command is not root:
        lines += [f"{'#' * min(_depth(context), 4)} {context.command_path}", ""]
        lines += ["```text", command.get_help(context), "```", ""]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            inner = click.Context(found, info_name=name, parent=context, terminal_width=100)
            lines += _describe(found, inner)
    return lines


def _depth(context: click.Context) -> int:
    return 1 if context.parent is None else _depth(context.parent) + 1


def python_reference() -> str:
    lines = ["## millstream.testing.Broker", "", _doc(Broker), ""]
    lines += [f"`Broker{_signature(Broker)}`", "", _doc(Broker.__init__), ""]
    for name, member in inspect.getmembers(Broker, inspect.isfunction):
        if not name.startswith("_"):
            lines += [f"### {name}", "", f"`{name}{_signature(member)}`", "", _doc(member), ""]
    lines += ["## Fixtures for pytest", ""]
    for name in ("kafka", "kafka_bootstrap", "make_topic"):
        function = inspect.unwrap(getattr(plugin, name).__wrapped__)
        lines += [f"### {name}", "", _doc(function), ""]
    return "\n".join(lines)


def _doc(thing: object) -> str:
    return inspect.getdoc(thing) or ""


def _signature(thing: object) -> str:
    text = str(inspect.signature(thing))  # type: ignore[arg-type]
    return re.sub(r"(self, |self)", "", text, count=1).replace("'", "")
