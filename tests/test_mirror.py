"""Tests lie where their modules lie.

`tests/storage/test_log.py` tests `src/millstream/storage/log.py`. A file named after no module
says which ones it tests, in a paragraph of its docstring: "Covers storage/log.py, broker/upkeep."
"""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "millstream"
FILES = sorted(
    file
    for package in SOURCE.iterdir()
    if package.is_dir()
    for file in (TESTS / package.name).rglob("test_*.py")
)


def has_module(file: Path) -> bool:
    place = SOURCE / file.parent.relative_to(TESTS)
    name = file.stem.removeprefix("test_")
    return any((place / f"{prefix}{name}.py").exists() for prefix in ("", "_"))


def named_places(file: Path) -> list[str]:
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    found = re.search(r"^Covers (.+?)\.$", text, re.MULTILINE | re.DOTALL)
    return re.split(r",\s+", found[1]) if found else []


def test_each_file_is_named_after_a_module_or_says_what_it_covers() -> None:
    astray = [file for file in FILES if not has_module(file) and not named_places(file)]
    assert astray == []


def test_what_a_file_covers_exists() -> None:
    places = {place for file in FILES for place in named_places(file)}
    assert [place for place in sorted(places) if not (SOURCE / place).exists()] == []
