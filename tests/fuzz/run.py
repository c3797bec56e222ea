"""Fuzz with atheris: `python -m tests.fuzz.run [--seconds 225] [TARGET ...]`.

What reached new code is kept in `corpus/TARGET.txt`, one input in base64 on each line, and the
tests read it every time. A finding is added there as well, and fails the tests until it is
mended. Every run appends a line to `results.jsonl`: the target, seconds, executions, and whether
there was a finding.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.corpus import keep, kept

RESULTS = Path(__file__).parent / "results.jsonl"
# Larger inputs reach nothing new, and make everything slow.
INPUT_BYTES_MAX = 2048
# One input; a regular expression or a recovery takes milliseconds.
INPUT_SECONDS_MAX = 5
MEMORY_MB_MAX = 1500
# Of each target, the shortest.
KEPT_MAX = 400


def fuzz(name: str) -> None:
    """In a process of its own: libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=["millstream"]):
        from tests.fuzz.targets import TARGETS
    atheris.Setup([sys.argv[0], *os.environ["FUZZ_OPTIONS"].split()], TARGETS[name].check)
    atheris.Fuzz()


def run(name: str, seconds: int) -> bool:
    """Whether nothing was found."""
    from tests.fuzz.targets import TARGETS

    with tempfile.TemporaryDirectory() as temporary:
        inputs, findings = Path(temporary) / "inputs", Path(temporary) / "findings"
        inputs.mkdir()
        findings.mkdir()
        for number, data in enumerate([*TARGETS[name].seeds(), *kept(name)]):
            (inputs / f"{number}").write_bytes(data)
        began = time.monotonic()
        done = _libfuzzer(
            name,
            f"-max_total_time={seconds} -max_len={INPUT_BYTES_MAX} -timeout={INPUT_SECONDS_MAX} "
            f"-rss_limit_mb={MEMORY_MB_MAX} -print_final_stats=1 -reduce_inputs=1 "
            f"-artifact_prefix={findings}/ {inputs}",
        )
        seconds = round(time.monotonic() - began)
        found = [file.read_bytes() for file in findings.iterdir()]
        reached = sorted((file.read_bytes() for file in inputs.iterdir()), key=len)
        keep(name, [*found, *reached[:KEPT_MAX]])
    executions = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    row = {
        "at": int(time.time()),
        "target": name,
        "seconds": seconds,
        "executions": int(executions[1]) if executions else 0,
        "corpus": len(kept(name)),
        "found": done.returncode != 0,
    }
    with open(RESULTS, "a") as results:
        results.write(json.dumps(row) + "\n")
    print(row, flush=True)
    if done.returncode:
        print(done.stderr[-3000:], file=sys.stderr)
    return done.returncode == 0


def _libfuzzer(name: str, options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz.run", "--inside", name],
        env={**os.environ, "FUZZ_OPTIONS": options},
        capture_output=True,
        text=True,
        check=False,
    )


def main() -> int:
    from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=3600 // len(TARGETS))
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []])
    options = parser.parse_args()
    good = [run(name, options.seconds) for name in options.targets or TARGETS]
    return 0 if all(good) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        fuzz(sys.argv[2])
    sys.exit(main())
