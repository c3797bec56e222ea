"""Runs the code blocks of a page, in order, as a reader would.

`sh` and `python` blocks run; blocks of other languages are texts. A comment before a block changes
that:

    <!-- test: background -->                starts a server, which runs until the page ends
    <!-- test: background, another node -->  the same, when the page has one already
    <!-- test: bootstrap -->                 the reader copies an address that a server printed
    <!-- test: not run, REASON -->

A line `export NAME=VALUE` also counts for the blocks after its own, as in a terminal. Lines with
`pip install` are checked, not run: what they install must be an extra of ours, or already here.
"""

import importlib.metadata
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.support.ports import reserve_ports

_PROJECT = Path(__file__).parent.parent.parent
_BLOCK = re.compile(
    r"(?:<!-- test: (?P<mark>[^>]*?) -->\n)?^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_EXPORT = re.compile(r"^export (\w+)=(\S+)$", re.MULTILINE)
_RUN = ("sh", "python")
_SECONDS_MAX = 300
# The ports that pages name. Three nodes have this one and the two after it.
_DEFAULT_PORTS = ("9092", "19092", "2181")
_NODES_MAX = 3


@dataclass(frozen=True, slots=True)
class Block:
    mark: str
    language: str
    code: str


def blocks(text: str) -> list[Block]:
    found = [
        Block(each["mark"] or "", each["language"], each["code"]) for each in _BLOCK.finditer(text)
    ]
    kinds = {"", "background", "background, another node", "bootstrap"}
    unknown = [b.mark for b in found if b.mark not in kinds and not b.mark.startswith("not run, ")]
    assert not unknown, f"unknown marks: {unknown}"
    return [block for block in found if block.language in _RUN]


class Reader:
    """`with Reader(folder) as reader: reader.follow(page)`: runs a page in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: list[subprocess.Popen[str]] = []
        # Of this page alone, for the ports that a page names.
        self._ports = {port: str(reserve_ports(_NODES_MAX)) for port in _DEFAULT_PORTS}
        self._environment = {
            **{k: v for k, v in os.environ.items() if "BOOTSTRAP" not in k},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "MILLSTREAM_CONFIG": str(folder / "profiles.toml"),
            "PYTHONUNBUFFERED": "1",
            # The fixtures of the page's own tests are those of the wheel, found by an entry point.
            "PYTEST_ADDOPTS": "-p no:cacheprovider",
        }

    def __enter__(self) -> "Reader":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in reversed(self._servers):
            server.send_signal(signal.SIGINT)
        for server in reversed(self._servers):
            server.wait(60)
            assert server.stdout is not None
            server.stdout.close()

    def follow(self, page: Path) -> int:
        """How many blocks ran. Raises AssertionError with the output of one that failed."""
        count = 0
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.mark.startswith("not run, "):
                continue
            count += 1
            if block.mark.startswith("background"):
                self._start(block)
            elif block.mark != "bootstrap":
                self._run(block)
        return count

    def _start(self, block: Block) -> None:
        command = self._prepared(block)
        server = subprocess.Popen(
            ["bash", "-c", f"exec {command.strip()}"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._servers.append(server)
        assert server.stdout is not None
        for line in server.stdout:
            if line.startswith("bootstrap "):
                self._environment["MILLSTREAM_BOOTSTRAP"] = line.split()[1]
                return
            if line.startswith("listening on "):
                # The first node has the port that commands use by default.
                self._environment.setdefault("MILLSTREAM_BOOTSTRAP", line.split()[-1])
                return
        raise AssertionError(f"{command} ended with {server.wait()}")

    def _run(self, block: Block) -> None:
        code = self._prepared(block)
        for name, value in _EXPORT.findall(code):
            self._export(name, value)
        program = ["bash", "-euo", "pipefail", "-c", code]
        if block.language == "python":
            program = [sys.executable, "-c", code]
        done = subprocess.run(
            program,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{code}\nended with {done.returncode}:\n{done.stdout}"

    def _export(self, name: str, value: str) -> None:
        self._environment[name] = value
        if name == "MILLSTREAM_CLIENT_CONFIG":
            # The file has the address.
            self._environment.pop("MILLSTREAM_BOOTSTRAP", None)

    def _prepared(self, block: Block) -> str:
        code = block.code
        for default, port in self._ports.items():
            code = re.sub(rf"\b{default}\b", port, code)
        # The default port is not in the text.
        code = re.sub(
            r"\bmillstream dev\b",
            f"millstream dev --port {self._ports['9092']} --no-console",
            code,
        )
        code = re.sub(
            r"\bmillstream secure (?![^\n]*--port)",
            f"millstream secure --port {self._ports['9092']} ",
            code,
        )
        if block.language == "sh":
            for line in re.findall(r"^pip install ([^&\n]*)", code, re.MULTILINE):
                _check_installable(shlex.split(line, comments=True))
            code = re.sub(r"^pip install [^&\n]*(?:&&\s*|\n)", "", code, flags=re.MULTILINE)
        return code


def _check_installable(packages: list[str]) -> None:
    extras = tomllib.loads((_PROJECT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for package in packages:
        found = re.fullmatch(r"([\w-]+)(?:\[(\w+)\])?", package)
        assert found is not None, package
        importlib.metadata.version(found[1])
        assert found[2] is None or found[2] in extras, f"no extra {found[2]}"
