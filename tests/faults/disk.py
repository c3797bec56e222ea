"""A real file system whose power can be cut: ext4 in a file, on a loop device.

The cut is ext4's own emergency shutdown without a journal flush: what was not synced is
gone from the page cache and from the journal, as after a power failure.
"""

import fcntl
import os
import struct
import subprocess
import time
from pathlib import Path
from types import TracebackType

_EXT4_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
_SIZE_BYTES = 2 << 30


class CuttableDisk:
    """`with CuttableDisk(folder) as disk:` mounts it at `disk.mount_point`. Needs root."""

    def __init__(self, folder: Path) -> None:
        self._image = folder / "disk.img"
        self.mount_point = folder / "mnt"

    def __enter__(self) -> "CuttableDisk":
        with open(self._image, "wb") as image:
            image.truncate(_SIZE_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self.mount_point.mkdir()
        self.mount()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.unmount()
        self._image.unlink()

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.mount_point))

    def unmount(self) -> None:
        # The killed node's last descriptors close a moment after it is reaped.
        for attempt in range(100):
            done = subprocess.run(
                ["umount", str(self.mount_point)], capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                return self._wait_until_detached()
            time.sleep(0.02 * (attempt + 1))
        raise AssertionError(f"cannot unmount: {done.stderr}")

    def _wait_until_detached(self) -> None:
        """A mount namespace made meanwhile holds the dead file system, and mounting again would
        show that one: every access an I/O error, which is no fault of the node."""
        for _ in range(100):
            if not _run("losetup", "--associated", str(self._image)):
                return
            time.sleep(0.1)
        raise AssertionError(f"{self._image} is still mounted in another mount namespace")

    def cut_power(self) -> None:
        """From here on every write fails, and what was not synced is lost."""
        descriptor = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _EXT4_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
