"""The sample projects' own tests, run as their users would run them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.apache_kafka import ApacheKafka

EXAMPLES = Path(__file__).parent.parent / "examples"
# By project: tests in all, and how many can only run on a broker that the test controls.
PROJECTS = {"alerts": (6, 3), "orders": (9, 4)}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def outcome(project: str, *arguments: str) -> dict[str, int]:
    """How many tests `passed`, `skipped` or `failed`."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *arguments],
        cwd=EXAMPLES / project,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.strip().splitlines()[-1]
    return {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", last)}


@pytest.mark.parametrize("project", PROJECTS)
def test_a_sample_project_passes(project: str) -> None:
    assert outcome(project).get("passed") == PROJECTS[project][0]


@pytest.mark.java
def test_sample_projects_pass_on_apache_kafka(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path) as kafka:
        for project, (count, controlled) in PROJECTS.items():
            found = outcome(project, "--millstream-external", kafka.bootstrap)
            assert found["passed"] == count - controlled, project
            assert found["skipped"] == controlled, project


def test_every_fixture_is_used() -> None:
    text = "".join(path.read_text() for path in EXAMPLES.glob("*/tests/*.py"))
    fixtures = re.findall(
        r"@pytest\.fixture.*\ndef (kafka\w*|make_topic|schema_registry)\(",
        (EXAMPLES.parent / "src/millstream/testing/plugin.py").read_text(),
    )
    assert len(fixtures) >= 6
    for name in fixtures:
        assert re.search(rf"\b{name}: ", text), name
