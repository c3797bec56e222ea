"""Go programs of the tests, compiled once into the cache.

Debian's Go is too old for them, so no script of ours installs it: tests that need it are skipped
with the reason, everywhere but on machines that have it.
"""

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.tools import cache_directory, run_checked

_BUILD_SECONDS_MAX = 600


@functools.cache
def go_program(directory: Path) -> str:
    """The program of a directory with `go.mod` and `main.go`."""
    problem = missing_go(directory)
    if problem is not None:
        pytest.skip(problem)
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((directory / name).read_bytes())
    built = cache_directory() / "go" / f"{directory.name}-{digest.hexdigest()[:16]}"
    built.parent.mkdir(exist_ok=True)
    with open(built.parent / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            part = built.with_suffix(".part")
            command = [_go() or "go", "build", "-trimpath", "-o", str(part), "."]
            run_checked(command, timeout_seconds=_BUILD_SECONDS_MAX, cwd=directory)
            part.rename(built)
    return str(built)


@functools.cache
def missing_go(directory: Path) -> str | None:
    """Why the program cannot be built here; None if it can."""
    wanted = _version((directory / "go.mod").read_text(), r"^go ")
    name = "Go {}.{} or newer".format(*wanted)
    go = _go()
    if go is None:
        return f"{name} is not installed"
    # The version that is installed, not one that it would download.
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    told = subprocess.run(
        [go, "env", "GOVERSION"], capture_output=True, text=True, env=environment, check=True
    )
    return None if _version(told.stdout, "^go") >= wanted else f"{name} is needed"


def _go() -> str | None:
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


def _version(text: str, before: str) -> tuple[int, int]:
    found = re.search(rf"{before}(\d+)\.(\d+)", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1]), int(found[2])
