"""The fuzz targets, and the tests of compiled code, on a build with ASAN and UBSAN.

    python -m tests.fuzz.sanitized [PYTEST ARGUMENT ...]

Builds a copy of the tree with both sanitizers in a temporary directory and runs the tests
there. The first wrong access or undefined operation of compiled code ends the run.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g"
TESTS = [
    *("tests/fuzz", "tests/records", "tests/lines", "tests/broker/network/test_receiving.py"),
    "tests/broker/requests/test_produced_batches.py",
]


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="millstream-sanitized-") as temporary:
        tree = Path(temporary)
        for name in ("src", "tests", "bench", "pyproject.toml", "setup.py", "README.md"):
            source = ROOT / name
            if source.is_dir():
                ignored = shutil.ignore_patterns("*.so", "build", "__pycache__")
                shutil.copytree(source, tree / name, ignore=ignored)
            else:
                shutil.copy(source, tree / name)
        subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--force"],
            cwd=tree,
            env={**os.environ, "CFLAGS": FLAGS, "LDFLAGS": FLAGS},
            check=True,
        )
        environment = {
            **os.environ,
            "PYTHONPATH": str(tree / "src"),
            # The interpreter is not built with it, so it has to be there before anything else.
            "LD_PRELOAD": " ".join(map(_library, ("libasan.so", "libubsan.so"))),
            # Python keeps much until its end, which is no leak of ours.
            "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
            # Its own allocator would hide what is read beyond an object.
            "PYTHONMALLOC": "malloc",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
        return subprocess.run(
            [*command, *(arguments or TESTS)], cwd=tree, env=environment, check=False
        ).returncode


def _library(name: str) -> str:
    compiler = os.environ.get("CC", "gcc")
    found = subprocess.run(
        [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
