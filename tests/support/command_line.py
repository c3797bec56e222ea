"""Run the `millstream` command as a user does: its own process, real exit codes."""

import os
import subprocess
import sys
from dataclasses import dataclass

_SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class Ran:
    exit_code: int
    output: str
    errors: str


def run_millstream(
    *arguments: str,
    stdin: str = "",
    bootstrap: str | None = None,
    seconds_max: float = _SECONDS_MAX,
) -> Ran:
    environment = {k: v for k, v in os.environ.items() if not k.endswith("BOOTSTRAP_SERVERS")}
    # A developer's own profiles are not part of any test.
    environment.setdefault("MILLSTREAM_CONFIG", os.devnull)
    if bootstrap is not None:
        environment["KAFKA_BOOTSTRAP_SERVERS"] = bootstrap
    done = subprocess.run(
        [sys.executable, "-m", "millstream", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
        env=environment,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
