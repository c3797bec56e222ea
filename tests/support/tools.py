"""Programs that tests need from the machine.

A missing program is an error that names the command which installs it, never a silent
skip: a test that did not run proves nothing. The one way out is MILLSTREAM_SKIP_JAVA=1,
set by a person who knows what is left out.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

DEBIAN_PACKAGES = {
    "java": "openjdk-17-jre-headless",
    "javac": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "kcat": "kcat",
    "Burrow": "burrow",
    "openssl": "openssl",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    # Brings rsyslog with it.
    "rsyslogd": "rsyslog-kafka",
}


class MissingTool(Exception):
    """A program that the tests need is not on this machine."""


def require(program: str) -> str:
    """The path of `program`, or an error that says how to get it."""
    # Daemons are not on everybody's path.
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    if path is None:
        package = DEBIAN_PACKAGES[program]
        raise MissingTool(f"{program} is not installed; on Debian: apt-get install -y {package}")
    return path


def skip_if_java_is_left_out() -> None:
    if os.environ.get("MILLSTREAM_SKIP_JAVA") == "1":
        pytest.skip("MILLSTREAM_SKIP_JAVA=1 leaves out what needs Java")


def cache_directory() -> Path:
    """Downloads and compiled helpers live here, outside the repository."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(base) / "millstream"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def run_checked(command: list[str], *, timeout_seconds: float, cwd: Path | None = None) -> str:
    """Run a program to its end and return what it printed; fail with its output."""
    done = subprocess.run(
        command,
        cwd=cwd,
        timeout=timeout_seconds,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        head = " ".join(command)[:200]
        raise AssertionError(f"{head} ... exited with {done.returncode}:\n{done.stdout[-6000:]}")
    return done.stdout
