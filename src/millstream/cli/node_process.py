"""A node as a child process on this machine."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from millstream.cli.child_processes import OWNER_ONLY_UMASK, open_owner_only
from millstream.cli.failure import CommandFailed
from millstream.cli.zookeeper import die_with_parent

FREE_PORT: Final = "127.0.0.1:0"
_STOP_SECONDS_MAX: Final = 60.0


class NodeProcess:
    """One node. It ends when this process does, however that ends."""

    def __init__(self, folder: Path, number: int, options: list[str], *, address: str) -> None:
        """`address` with port 0 is any free port."""
        self.name = f"node {number}"
        self.log_path = folder / f"node-{number}.log"
        self._command = [
            *(sys.executable, "-m", "millstream", "broker"),
            *("--data-dir", str(folder / f"node-{number}")),
            *("--set", f"node.id={number}"),
            *options,
        ]
        # From the first start on the address with its port: clients find the node there again.
        self._address = address
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with open_owner_only(self.log_path) as errors:
            self.process = subprocess.Popen(
                [*self._command, "--listen", self._address],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                preexec_fn=die_with_parent if sys.platform == "linux" else None,
                umask=OWNER_ONLY_UMASK,
                # Ctrl-C is for this process, which stops the nodes in order.
                start_new_session=True,
            )

    def wait_serving(self) -> str:
        """The address, once the node serves. Raises CommandFailed if it does not start."""
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = re.match(r"listening on (\S+)", line)
            if found is not None:
                self._address = found[1]
                return self._address
        raise CommandFailed(f"{self.name} did not start, see {self.log_path}")

    def wait_ended(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        code = self.process.wait()
        self.process.stdout.close()
        return code

    def ask_to_stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def wait_stopped(self) -> None:
        if self.process is None:
            return
        try:
            self.process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
