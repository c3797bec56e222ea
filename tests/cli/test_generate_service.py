"""Files that run a node as a service.

Covers cli/generate.py, cli/generate_service.py.
"""

import re
import shlex
from pathlib import Path

import yaml

from millstream.cli.main import root
from millstream.config import load_config
from tests.support.command_line import run_millstream


def printed(*arguments: str) -> str:
    ran = run_millstream("generate", *arguments)
    assert ran.exit_code == 0, ran.errors
    return ran.output


def test_the_unit_runs_a_command_that_exists() -> None:
    unit = printed("systemd", "--data-dir", "/srv/my data", "--listen", "127.0.0.1:9999")
    start = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert start is not None
    assert 'ReadWritePaths="/srv/my data"' in unit
    program, name, *options = shlex.split(start[1])
    assert Path(program).is_absolute()
    context = root.make_context("millstream", [], resilient_parsing=True)
    command = root.get_command(context, name)
    assert command is not None
    parsed = command.make_context(name, options, parent=context)
    assert parsed.params["data_dir"] == "/srv/my data"
    assert parsed.params["listen"] == "127.0.0.1:9999"


def test_the_options_of_the_compose_file_are_options_of_a_node() -> None:
    service = yaml.safe_load(printed("compose", "--port", "19092"))["services"]["millstream"]
    sets = [each.removeprefix("--set=") for each in service["command"]]
    load_config(sets=sets, flags={"log.dirs": "/data"})
    assert any("OUTSIDE://localhost:19092" in each for each in sets)
    assert service["ports"] == ["127.0.0.1:19092:9092"]


def test_the_image_starts_a_node_with_options_that_exist() -> None:
    text = printed("dockerfile").replace("\\\n", " ")
    sets = re.findall(r'"--set", "([^"]+)"', text)
    assert len(sets) == 3
    load_config(sets=sets, flags={"log.dirs": "/data"})
