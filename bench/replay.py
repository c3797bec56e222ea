"""Running `native/replay.c`: the load whose client costs next to nothing.

The program is compiled on first use and kept outside the repository, named by the digest
of its source.
"""

import functools
import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.frames import Load
from tests.support.tools import cache_directory, run_checked

_SOURCE = Path(__file__).parent / "native" / "replay.c"
_SECONDS_MAX = 300


class ReplayFailed(Exception):
    """The server closed the connection, or answered with errors."""


@dataclass(frozen=True, slots=True)
class Replayed:
    seconds: float
    requests: int
    bytes_sent: int
    bytes_received: int
    client_cpu_seconds: float
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float


@functools.cache
def program() -> Path:
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    path = cache_directory() / f"replay-{digest}"
    if not path.exists():
        temporary = path.with_suffix(".tmp")
        run_checked(["gcc", "-O2", "-o", str(temporary), str(_SOURCE)], timeout_seconds=60)
        temporary.rename(path)
    return path


def write_frames(load: Load, path: Path) -> None:
    with open(path, "wb") as file:
        file.writelines(load.frames)


def replay(port: int, frames: Path, load: Load, *options: str) -> Replayed:
    """Send the frames that `write_frames` wrote; `options` are those of replay.c."""
    checks = [text for at in load.error_at for text in ("--error-at", str(at))]
    command = [str(program()), "127.0.0.1", str(port), str(frames), *options, *checks]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False
    )
    if done.returncode != 0:
        raise ReplayFailed(done.stderr.strip())
    return parse(done.stdout)


def parse(line: str) -> Replayed:
    found = json.loads(line)
    errors, first_error = found.pop("errors"), found.pop("first_error")
    if errors:
        raise ReplayFailed(f"{errors} answers with errors, the first with code {first_error}")
    return Replayed(**found)
