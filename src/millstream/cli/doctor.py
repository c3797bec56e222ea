"""`millstream doctor`: what on this machine would keep a node, a client or Spark from working.

Each check says what it found and, for a problem, what to do about it. Those for Spark: a worker
that runs another Python, another module that hides ours, a library that Spark needs and does not
name.
"""

import importlib
import importlib.metadata
import importlib.util
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
from click.core import ParameterSource

from millstream.cli.bootstrap import bootstrap_option, json_option
from millstream.cli.doctor_node import (
    Finding,
    check_broker,
    check_descriptors,
    check_disk,
    check_python,
)
from millstream.cli.failure import CommandFailed
from millstream.cli.output import print_json, print_table

_JAVA_MIN = 17
_PROTOBUF_MIN = (6, 33, 5)
_SECONDS_MAX = 20
_OUR_SOURCE = "pyspark_millstream"
_SPARK_REMEDY = "pip install 'millstream[spark]'"


@click.command("doctor")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Where the node's data is, or will be.  [default: the current directory]",
)
@json_option
@bootstrap_option
@click.pass_context
def doctor(context: click.Context, data_dir: Path, as_json: bool, bootstrap: str) -> None:
    """Check this machine, the broker, and the libraries, and say how to fix what is wrong.

    A broker must answer only if one is named, with -b or in the environment. What only Spark needs
    is checked if PySpark is installed. Exits with 1 if there is a problem.
    """
    is_named = context.get_parameter_source("bootstrap") is not ParameterSource.DEFAULT
    findings = [finding for check in CHECKS for finding in check()]
    findings += check_disk(data_dir)
    findings += check_broker(bootstrap, is_required=is_named)
    if as_json:
        print_json([{"check": f.what, "ok": f.is_good, "text": f.text} for f in findings])
    else:
        rows = [("ok" if f.is_good else "PROBLEM", f.what, f.text) for f in findings]
        print_table(["STATE", "CHECK", "FOUND"], rows)
    problems = sum(not finding.is_good for finding in findings)
    if problems:
        raise CommandFailed(f"{problems} of {len(findings)} checks found a problem")


def check_spark() -> list[Finding]:
    """Most problems with a Python data source cause no clear message, so each is a check."""
    if _version("pyspark") is None:
        text = "not installed; only the Spark source and pipelines need it: " + _SPARK_REMEDY
        return [Finding("spark", True, text)]
    return [finding for check in SPARK_CHECKS for finding in check()]


def check_java() -> list[Finding]:
    """Spark 4 needs Java 17; it prefers JAVA_HOME to the PATH."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    remedy = f"install Java {_JAVA_MIN} or later, or point JAVA_HOME to it"
    if java is None or not os.access(java, os.X_OK):
        return [Finding("java", False, f"not found at {java or 'any place in PATH'}; {remedy}")]
    said = _release(java) or _output([java, "-version"])
    number = re.search(r'version(?: |=)"(\d+)(?:\.(\d+))?', said, re.IGNORECASE)
    if number is None:
        return [Finding("java", False, f"{java} does not print its version; {remedy}")]
    major = int(number[2] or 0) if number[1] == "1" else int(number[1])
    if major < _JAVA_MIN:
        return [Finding("java", False, f"{java} is Java {major}; {remedy}")]
    return [Finding("java", True, f"{major} ({java})")]


def _release(java: str) -> str:
    """The line of JAVA_VERSION in the file that comes with a JDK; empty if there is none.

    Reading it takes no time, starting Java does."""
    file = Path(os.path.realpath(java)).parents[1] / "release"
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith("JAVA_VERSION=")), "")


def check_pyspark() -> list[Finding]:
    version = _version("pyspark")
    if version is None:
        return [Finding("pyspark", False, f"not installed; {_SPARK_REMEDY}")]
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    is_right = (4, 3) <= numbers < (5,)
    remedy = "pip install 'pyspark>=4.3,<5'"
    text = version if is_right else f"{version}; the source needs 4.3 or a later 4: {remedy}"
    return [Finding("pyspark", is_right, text)]


def check_libraries() -> list[Finding]:
    return [
        _library("pyarrow", lambda numbers: True, ""),
        _library("pandas", lambda numbers: (2, 2) <= numbers < (3,), "needs >=2.2,<3"),
        _library(
            "protobuf",
            lambda numbers: numbers >= _PROTOBUF_MIN,
            "transformWithState needs >=6.33.5 and fails without a message",
        ),
    ]


def _library(name: str, is_right: Callable[[tuple[int, ...]], bool], need: str) -> Finding:
    version = _version(name)
    remedy = _SPARK_REMEDY
    if version is None:
        return Finding(name, False, f"not installed; {remedy}")
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if not is_right(numbers):
        return Finding(name, False, f"{version}; {need}; {remedy}")
    return Finding(name, True, version)


def check_compiled() -> list[Finding]:
    from millstream.broker.network import receiving
    from millstream.records import columns, rows

    found = [
        _loops("record loops (reading)", columns.IMPLEMENTATION.NAME, "ten times"),
        _loops("record loops (writing)", rows.IMPLEMENTATION.NAME, "ten times"),
        _loops("receiving from clients", receiving.NAME, "many small requests two times"),
    ]
    # Arrow belongs to an extra, and has a separate finding. These would load it, so here only
    # their files are looked for.
    if _version("pyarrow") is not None:
        for what, module, times in (
            ("line scanner", "_scan", "fifty times"),
            ("message templates", "_drain", "twenty times"),
        ):
            is_there = importlib.util.find_spec(f"millstream.lines.{module}") is not None
            found.append(_loops(what, "compiled" if is_there else "python", times))
    return found


def _loops(what: str, name: str, times: str) -> Finding:
    is_compiled = name == "compiled"
    remedy = "" if is_compiled else f"; {times} slower: install a C compiler, then reinstall"
    return Finding(what, is_compiled, name + remedy)


def check_worker_python() -> list[Finding]:
    """Spark starts workers with PYSPARK_PYTHON, otherwise with `python3` from the PATH."""
    name = os.environ.get("PYSPARK_PYTHON", "python3")
    path = shutil.which(name)
    remedy = f"set PYSPARK_PYTHON={sys.executable}"
    if path is None:
        return [Finding("python of the workers", False, f"{name} does not exist; {remedy}")]
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    if _is_this_python(path):
        return [Finding("python of the workers", True, f"{ours} ({path})")]
    program = "import sys, pyarrow, millstream; print('%d.%d' % sys.version_info[:2])"
    said = _output([path, "-c", program]).strip().splitlines() or ["no answer"]
    if said[-1] != ours:
        return [Finding("python of the workers", False, f"{path}: {said[-1]}; {remedy}")]
    return [Finding("python of the workers", True, f"{ours} ({path})")]


def _is_this_python(path: str) -> bool:
    """Does it run the same interpreter with the same libraries, Arrow among them?"""
    is_same_place = os.path.dirname(path) == os.path.dirname(sys.executable)
    is_same_file = os.path.realpath(path) == os.path.realpath(sys.executable)
    return is_same_place and is_same_file and importlib.util.find_spec("pyarrow") is not None


def check_neighbours() -> list[Finding]:
    """Spark imports every `pyspark_*` module it finds; one that fails hides all sources."""
    found = []
    for module in pkgutil.iter_modules():
        if not module.name.startswith("pyspark_"):
            continue
        if module.name == _OUR_SOURCE:
            # It catches whatever is wrong with PySpark, which takes long to load.
            found.append(Finding(module.name, True, "found"))
            continue
        try:
            importlib.import_module(module.name)
        except Exception as failed:  # Spark would get the same
            text = (
                f"import fails ({type(failed).__name__}: {failed}), and hides every Python data "
                "source; repair or uninstall it"
            )
            found.append(Finding(module.name, False, text))
        else:
            found.append(Finding(module.name, True, "imports"))
    return found


SPARK_CHECKS = (
    check_java,
    check_pyspark,
    check_libraries,
    check_worker_python,
    check_neighbours,
)
CHECKS = (check_python, check_compiled, check_descriptors, check_spark)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_SECONDS_MAX,
            check=False,
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired) as failed:
        return str(failed)
    return done.stdout
