"""An S3 server for tests: moto's."""

import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType

from tests.support.ports import reserve_port

_START_SECONDS_MAX = 120
BUCKET = "lake"


class S3Server:
    """`with S3Server(folder) as server:` has one empty bucket, and forgets it at the end."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "s3.log"
        self._port = reserve_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "anybody",
            "AWS_SECRET_ACCESS_KEY": "anything",
        }

    def __enter__(self) -> "S3Server":
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self._make_bucket()
        return self

    def _make_bucket(self) -> None:
        assert self._process is not None
        address = f"http://127.0.0.1:{self._port}/{BUCKET}"
        deadline = time.monotonic() + _START_SECONDS_MAX
        while True:
            try:
                urllib.request.urlopen(urllib.request.Request(address, method="PUT"), timeout=30)
            except OSError:
                said = self._log.read_text(errors="replace")[-1000:]
                assert self._process.poll() is None, said
                assert time.monotonic() < deadline, said
                time.sleep(0.1)
            else:
                return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)
