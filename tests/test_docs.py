"""What the documents name must exist: commands, make targets, files."""

import re
from pathlib import Path

import click
import pytest

from millstream.cli.main import root

PROJECT = Path(__file__).parent.parent
DOCUMENTS = sorted([PROJECT / "README.md", *PROJECT.glob("docs/**/*.md")])
_SHELL_BLOCK = re.compile(r"```(?:sh|bash|console)\n(.*?)```", re.DOTALL)
_INLINE_CODE = re.compile(r"`([^`\n]+)`")


def named_commands(text: str) -> list[str]:
    """Every `millstream ...` command line in shell blocks and inline code."""
    lines = [line for block in _SHELL_BLOCK.findall(text) for line in block.splitlines()]
    lines += _INLINE_CODE.findall(_SHELL_BLOCK.sub("", text))
    found = []
    for line in lines:
        for part in re.split(r"[|;&]+", line.partition("#")[0]):
            command = re.match(r"\s*(?:\$\s+)?(?:\S*/)?millstream\s+(.*)", part)
            if command:
                # After `--` comes another program's command line.
                found.append(command[1].partition(" -- ")[0].strip())
    return found


def command_problem(words: list[str]) -> str | None:
    """Why a command line cannot be run as written, or None."""
    command: click.Command = root
    context = click.Context(command, info_name="millstream")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        # `topic create|list` in a text names several commands at once.
        name = words.pop(0)
        choices = [command.get_command(context, each) for each in name.split("|")]
        if None in choices:
            return f"no command {name}"
        assert choices[0] is not None
        command = choices[0]
        context = click.Context(command, info_name=name, parent=context)
    known = {option for each in command.get_params(context) for option in each.opts}
    options = [word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]
    unknown = [option for option in options if option not in known]
    return f"no option {unknown[0]}" if unknown else None


def make_targets() -> set[str]:
    return set(
        re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_in_a_document_exists(document: Path) -> None:
    problems = {
        line: problem
        for line in named_commands(document.read_text(encoding="utf-8"))
        if (problem := command_problem([word.strip("[].,") for word in line.split()]))
    }
    assert problems == {}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_make_target_in_a_document_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    lines = "\n".join([*_SHELL_BLOCK.findall(text), *_INLINE_CODE.findall(text)])
    named = set(re.findall(r"^\s*make ([a-z-]+)", lines, re.MULTILINE))
    assert named <= make_targets()


def table_problems(text: str) -> list[str]:
    """Lines outside of code that are not whole rows of a table, though they have its bars."""
    problems = []
    bars_of_header = 0
    for line in re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines():
        if line.startswith("    "):
            continue
        line = line.strip()
        bars = len(re.findall(r"(?<!\\)\|", _INLINE_CODE.sub("", line)))
        if bars == 0:
            bars_of_header = 0
            continue
        bars_of_header = bars_of_header or bars
        is_row = line.startswith("|") and line.endswith("|")
        if not is_row or bars != bars_of_header:
            problems.append(line)
    return problems


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_row_of_a_table_is_whole(document: Path) -> None:
    assert table_problems(document.read_text(encoding="utf-8")) == []


def test_a_row_that_was_wrapped_is_noticed() -> None:
    table = "| what | why |\n|---|---|\n| a long row | with a\nreason |\n"
    assert table_problems(table) == [
        "| a long row | with a",
        "reason |",
    ]
    assert table_problems("| a | b |\n|---|---|\n| c | | d | e |\n") == ["| c | | d | e |"]
    assert table_problems("| a | `b|c` |\n|---|---|\n| c | d |\n") == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_source_file_in_a_document_exists(document: Path) -> None:
    named = re.findall(
        r"`((?:src|tests|docs|bench|scripts)/[\w./-]+)`", document.read_text(encoding="utf-8")
    )
    assert [path for path in named if not (PROJECT / path).exists()] == []


_FILE_AND_NAMES = re.compile(r"`([\w/]+\.(?:py|pyx|txt))`(?: \(([^)]*)\))?")


def problems_of_a_row(answer: str) -> list[str]:
    """Files that do not exist, and names that are not in the file before them. A file without a
    folder is in that of the file before it."""
    problems = []
    folder = PROJECT / "src" / "millstream"
    for file, names in _FILE_AND_NAMES.findall(answer):
        places = [PROJECT / "src" / "millstream" / file, PROJECT / file, folder / file]
        path = next((place for place in places if place.exists()), None)
        if path is None:
            problems.append(file)
            continue
        folder = path.parent
        text = path.read_text(encoding="utf-8")
        # A compiled twin is named beside the function.
        wanted = re.findall(r"`(?:\w+\.)?(\w+)(?<!\.pyx)`", names)
        problems += [f"{name} in {file}" for name in wanted if not re.search(rf"\b{name}\b", text)]
    return problems


def test_everything_that_the_index_of_behaviours_names_exists() -> None:
    document = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    index = document.partition("## Who decides what")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in index.splitlines() if line.startswith("| ")]
    assert len(rows) > 100
    assert [problem for row in rows for problem in problems_of_a_row(row[-1])] == []


def test_a_row_that_names_something_else_is_noticed() -> None:
    row = "`storage/log.py` (`Log`, `Lag`), `rolling.py`, `falling.py`; `config/options.txt`"
    assert problems_of_a_row(row) == ["Lag in storage/log.py", "falling.py"]


def test_the_readme_names_the_commands_a_newcomer_needs() -> None:
    commands = named_commands((PROJECT / "README.md").read_text(encoding="utf-8"))
    first_words = {line.split()[0] for line in commands}
    assert {"broker", "topic", "produce", "consume", "storage"} <= first_words
