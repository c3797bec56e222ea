"""The Java client of Apache Kafka, driven over a pipe: one JSON line in, one line out.

One process serves many commands, because a JVM takes a second to start.
"""

import base64
import json
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.java_program import java_command

_SOURCE = Path(__file__).parent / "java" / "InteropClient.java"
# Jackson refuses single strings above 20 MB; a 5 MB record is 7 MB in base64.
_HEAP = "512m"


class JavaClientError(Exception):
    """The Java client threw; `name` is the simple name of the exception's class."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


class JavaClient:
    """`with JavaClient(bootstrap) as java: java.call("topic_names")["names"]`"""

    def __init__(self, bootstrap: str, config: Path | None = None) -> None:
        """`config` is a file with more client options."""
        more = [] if config is None else [str(config)]
        self._process = subprocess.Popen(
            [*java_command(_SOURCE, heap=_HEAP), bootstrap, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> "JavaClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def call(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Run one command; raises `JavaClientError` if the client threw."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the Java client died with code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise JavaClientError(answer["error"], answer["message"])
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def encode_bytes(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def decode_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
