"""`millstream broker` as a process: signals and exit codes."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_any_number_of_signals_is_a_clean_stop(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "millstream", "broker", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("listening on ")
        while process.poll() is None:
            process.send_signal(number)
        assert process.returncode == 0
        assert process.stderr.read() == ""
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
