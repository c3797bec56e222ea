"""The pipeline file as an argument of commands."""

from pathlib import Path

import click

from millstream.cli.failure import CommandFailed
from millstream.pipeline.spec import Spec, SpecError, load_spec

file_argument = click.argument(
    "file", type=click.Path(path_type=Path, dir_okay=False), default="pipeline.toml"
)


def load_file(file: Path) -> Spec:
    try:
        return load_spec(file)
    except SpecError as wrong:
        raise CommandFailed(f"{file}: {wrong}") from None
