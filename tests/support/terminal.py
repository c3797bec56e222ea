"""Run a command with a terminal as its standard output, and look at what the terminal got."""

import os
import pty
import subprocess
import sys
import unicodedata
from collections.abc import Sequence

# Colours, a title, a jump by one byte of ISO 8859, text that runs backwards.
HOSTILE = "evil\x1b[31m\x1b]0;owned\x07\x7f\x9b2J\u202e"
_LAYOUT = "\n\t"
_OBEYED = ("Cc", "Cf", "Zl", "Zp", "Cs")


def obeyed_by_terminals(text: str) -> str:
    """The characters that a terminal acts upon; line breaks are ours."""
    return "".join(
        each
        for each in text.replace("\r\n", "\n")
        if each not in _LAYOUT and unicodedata.category(each) in _OBEYED
    )


def on_a_terminal(arguments: Sequence[str], *, bootstrap: str, stdin: str = "") -> str:
    """What `millstream` has printed, with line ends as the terminal gets them."""
    ours, theirs = pty.openpty()
    environment = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap,
        "MILLSTREAM_CONFIG": os.devnull,
        "PYTHONIOENCODING": "utf-8",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "millstream", *arguments],
        stdin=subprocess.PIPE,
        stdout=theirs,
        stderr=subprocess.STDOUT,
        env=environment,
    ) as process:
        os.close(theirs)
        assert process.stdin is not None
        process.stdin.write(stdin.encode())
        process.stdin.close()
        found = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:
                # How Linux tells that the other side is closed.
                break
            if not part:
                break
            found += part
        process.wait(timeout=60)
    os.close(ours)
    assert process.returncode == 0, found
    return found.decode()
