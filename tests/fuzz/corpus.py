"""Inputs that fuzzing has kept, one in base64 on each line of a target's file."""

import base64
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parent / "corpus"


def kept(name: str) -> list[bytes]:
    file = FOLDER / f"{name}.txt"
    return [base64.b64decode(line) for line in file.read_text().split()] if file.exists() else []


def keep(name: str, inputs: Iterable[bytes]) -> None:
    lines = sorted({base64.b64encode(data).decode() for data in inputs if data})
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
