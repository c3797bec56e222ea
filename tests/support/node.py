"""A Millstream node as users start it: a process that prints where it listens."""

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from tests.support.ports import reserve_port

_START_SECONDS_MAX = 60
_STOP_SECONDS_MAX = 60


class MillstreamNode:
    """`with MillstreamNode(data_dir) as node:` starts on a port of its own, stops with SIGTERM.

    It keeps the port when it is started again: clients live through that."""

    def __init__(self, data_dir: Path, *options: str, protocol: str = "PLAINTEXT") -> None:
        """`protocol` is that of its one listener, whose name is the same."""
        self._protocol = protocol
        self.data_dir = data_dir
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._errors_path = data_dir.with_name(data_dir.name + ".stderr")
        self.bootstrap = ""
        self._host = "127.0.0.1"
        self._port = reserve_port()
        self._before: list[str] = []
        # Where another version of Millstream is installed; None for this one.
        self.packages: Path | None = None

    def run_inside(self, before: list[str], host: str) -> None:
        """Run behind another command, which puts it somewhere with an address of its own."""
        self._before = before
        self._host = host

    def keep_log_in(self, folder: Path) -> None:
        """Where stderr goes; needed when the data directory's disk will fail."""
        self._errors_path = folder / "node.stderr"

    @property
    def log_text(self) -> str:
        return self._errors_path.read_text(errors="replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> "MillstreamNode":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        command = [sys.executable, "-m", "millstream", "broker", "--data-dir", str(self.data_dir)]
        with open(self._errors_path, "ab") as errors:
            self._process = subprocess.Popen(
                [*self._before, *command, *self._listen(), *self._options],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **self._version()},
            )
        try:
            self.bootstrap = self._wait_for_address()
        except BaseException:
            self.kill()
            raise

    def _version(self) -> dict[str, str]:
        return {} if self.packages is None else {"PYTHONPATH": str(self.packages)}

    def _listen(self) -> list[str]:
        address = f"{self._host}:{self._port}"
        if self._protocol == "PLAINTEXT":
            # In a network namespace of a test, only the test itself reaches it.
            is_local = self._host == "127.0.0.1"
            allowed = [] if is_local else ["--set", "allow.insecure.listeners=true"]
            return ["--listen", address, *allowed]
        return ["--set", f"listeners={self._protocol}://{address}"]

    def stop(self) -> int:
        """Stop cleanly and return the exit code."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the node ignored SIGTERM:\n{self.log_text[-4000:]}") from None
        return self._forget()

    def freeze(self) -> None:
        """Stop the process where it is: from now on it can promise nothing more."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def kill(self) -> None:
        """kill -9: no clean-up at all."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def _forget(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.stdout.close()
        code = self._process.returncode
        self._process = None
        return code

    def _wait_for_address(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        output = b""
        deadline = time.monotonic() + _START_SECONDS_MAX
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while True:
                found = re.search(rb"^listening on (\S+:\d+)\s*$", output, re.MULTILINE)
                if found:
                    return found[1].decode()
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise AssertionError(f"the node is not ready:\n{self.log_text[-4000:]}")
                part = os.read(self._process.stdout.fileno(), 65536)
                if not part:
                    raise AssertionError(f"the node did not start:\n{self.log_text[-4000:]}")
                output += part
