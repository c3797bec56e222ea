"""Watches processes that should run until this one stops: reports and restarts those that exit."""

import os
import signal
import threading
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from millstream.cli.failure import CommandFailed
from millstream.cli.output import echo

# Of the processes: what they store holds secrets, and their logs name clients.
OWNER_ONLY_UMASK: Final = 0o077
_OWNER_ONLY_FOLDER: Final = 0o700
_OWNER_ONLY_FILE: Final = 0o600
_PAUSE_SECONDS_MIN: Final = 5.0
_PAUSE_SECONDS_MAX: Final = 60.0


class Watched(Protocol):
    name: str
    log_path: Path

    def wait_ended(self) -> int:
        """The exit code; negative is the signal that ended it."""
        ...

    def start(self) -> None: ...
    def wait_serving(self) -> str:
        """The address, once it serves. Raises CommandFailed if it does not."""
        ...


class Watch:
    """One thread for each process: it only waits for its end."""

    def __init__(self, *, restarts: bool, pause_seconds: float = _PAUSE_SECONDS_MIN) -> None:
        self._restarts = restarts
        self._pause_seconds = pause_seconds
        self._stopping = threading.Event()
        # Held while a process is started, so that none is left running.
        self._starting = threading.Lock()
        self._threads: list[threading.Thread] = []

    def over(self, process: Watched) -> None:
        thread = threading.Thread(target=self._watch, args=(process,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Start and report nothing from here on. The caller stops the processes after this."""
        with self._starting:
            self._stopping.set()

    def _watch(self, process: Watched) -> None:
        pause_seconds = self._pause_seconds
        while True:
            code = process.wait_ended()
            if self._stopping.is_set():
                return
            what = f"{process.name} exited ({ending(code)}), its log is {process.log_path}"
            if not self._restarts:
                _say(what)
                return
            _say(f"{what}; restarting it in {pause_seconds:.0f} s")
            if self._stopping.wait(pause_seconds) or not self._start(process):
                return
            try:
                _say(f"{process.name} is back at {process.wait_serving()}")
                pause_seconds = self._pause_seconds
            except CommandFailed:
                # It exited again; the next iteration reports that.
                pause_seconds = min(pause_seconds * 2, _PAUSE_SECONDS_MAX)

    def _start(self, process: Watched) -> bool:
        with self._starting:
            if not self._stopping.is_set():
                process.start()
            return not self._stopping.is_set()


def make_owner_only_folder(folder: Path) -> None:
    """One that exists already may be anybody's, and keeps its permissions."""
    folder.mkdir(_OWNER_ONLY_FOLDER, parents=True, exist_ok=True)


def open_owner_only(path: Path) -> BinaryIO:
    """Open to append; other users cannot read it from now on."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, _OWNER_ONLY_FILE)
    os.fchmod(descriptor, _OWNER_ONLY_FILE)
    return os.fdopen(descriptor, "ab")


def ending(code: int) -> str:
    """`exit code 1`, `SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _say(text: str) -> None:
    echo(f"millstream: {text}", err=True)
