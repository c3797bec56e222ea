"""Spark's Java process, when a command does not get as far as using it."""

import signal
import subprocess
from pathlib import Path

import pytest

from millstream.cli.spark_process import ending_what_began

pytestmark = pytest.mark.skipif(
    not list(Path("/proc/self/task").glob("*/children")), reason="the system tells no children"
)
WAITING = ("sleep", "60")


def test_what_began_ends_with_a_start_that_is_interrupted_and_nothing_else() -> None:
    with subprocess.Popen(WAITING) as earlier:
        with pytest.raises(KeyboardInterrupt), ending_what_began():
            began = subprocess.Popen(WAITING)
            raise KeyboardInterrupt
        assert began.wait(10) == -signal.SIGTERM
        assert earlier.poll() is None
        earlier.kill()


def test_what_began_goes_on_after_a_start_that_succeeds() -> None:
    with ending_what_began():
        began = subprocess.Popen(WAITING)
    assert began.poll() is None
    began.kill()
    began.wait()
