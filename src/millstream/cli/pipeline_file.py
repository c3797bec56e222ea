"""What the pipeline commands share: the pipeline's file, and Spark's master."""

import importlib
import os
import sys
from pathlib import Path

import click

from millstream.cli.failure import CommandFailed
from millstream.pipeline.spec import Spec, SpecError, load_spec

file_argument = click.argument(
    "file", type=click.Path(path_type=Path, dir_okay=False), default="pipeline.toml"
)


def _master(context: click.Context, parameter: click.Parameter, value: str) -> str | None:
    return None if value == "submitted" else value


# None if spark-submit has chosen one.
master_option = click.option(
    "--master",
    default="local[*]",
    show_default=True,
    callback=_master,
    help="Spark's master; 'submitted' inside spark-submit.",
)


def load_file(file: Path) -> Spec:
    """The contents of FILE; modules beside it can be imported from now on, here and in workers."""
    try:
        spec = load_spec(file)
    except SpecError as wrong:
        raise CommandFailed(f"{file}: {wrong}") from None
    if any(rule.function for rule in spec.sources):
        _make_importable(file.parent.absolute())
    return spec


def _make_importable(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    # Spark's workers, on this machine, get it from the environment.
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(folder) not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, known)])


def check_functions(spec: Spec) -> None:
    """Can the parsers in the file be imported? Tried here, where it can be reported."""
    for name in filter(None, (rule.function for rule in spec.sources)):
        module, _, function = name.partition(":")
        try:
            getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as failed:
            raise CommandFailed(f"function {name} cannot be loaded: {failed}") from None
