"""The package as users install it: what it needs is explained, and it works alone."""

import json
import os
import re
import signal
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.wheel import install_wheel

PROJECT = Path(__file__).parent.parent


def dependencies() -> set[str]:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    names = {re.match(r"[\w.-]+", line)[0] for group in groups for line in group}  # type: ignore[index]
    return names - {"millstream"}


def test_every_dependency_is_explained() -> None:
    page = (PROJECT / "docs" / "dependencies.md").read_text()
    words = set(re.findall(r"[\w.-]+", page))
    assert sorted(dependencies() - words) == []


def test_every_dependency_has_a_tested_version() -> None:
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (PROJECT / "constraints.txt").read_text().splitlines()
    }
    missing = {name for name in dependencies() if name.lower().replace("_", "-") not in pinned}
    # Of the extra `bench`, which the tests do without.
    assert missing <= {"matplotlib", "py-spy"}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_wheel_alone_runs_a_node_for_development(tmp_path: Path) -> None:
    python = install_wheel(tmp_path)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [str(python), "-m", "millstream"]
    where = subprocess.check_output(
        [str(python), "-c", "import millstream; print(millstream.__file__)"],
        env=environment,
        cwd=elsewhere,
        text=True,
    )
    assert where.startswith(str(tmp_path))
    with subprocess.Popen(
        [*command, "dev", "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        env=environment,
        cwd=elsewhere,
    ) as node:
        assert node.stdout is not None
        bootstrap = json.loads(node.stdout.readline())["bootstrap"]
        read = [*command, "consume", "example", "-e", "-f", "%k ", "-b", bootstrap]
        output = subprocess.check_output(read, env=environment, cwd=elsewhere, timeout=60)
        assert output == b"alice bob alice "
        node.send_signal(signal.SIGINT)
        assert node.wait(60) == 0
    version = subprocess.check_output([*command, "--version"], env=environment, cwd=elsewhere)
    assert b"pure Python" not in version
