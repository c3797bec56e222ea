"""Which program holds a port of this machine, from /proc: no other tool is needed.

python -m millstream.cli.port_holder 9092
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from millstream.cli.output import escaped

_LISTENING: Final = "0A"
_PROC: Final = Path("/proc")


def listening_sockets(table: str, port: int) -> set[str]:
    """The inodes of listening sockets on `port`, from the text of /proc/net/tcp."""
    found = set()
    for line in table.splitlines()[1:]:
        columns = line.split()
        if len(columns) > 9 and columns[3] == _LISTENING:
            address = columns[1]
            if int(address.rpartition(":")[2], 16) == port:
                found.add(columns[9])
    return found


def port_holders(port: int, proc: Path = _PROC) -> list[str]:
    """`PID COMMAND` of each process that listens on `port`, as far as this user may see."""
    wanted: set[str] = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            wanted |= listening_sockets((proc / "net" / name).read_text(), port)
    links = {f"socket:[{inode}]" for inode in wanted}
    return [text for folder in sorted(proc.glob("[0-9]*")) for text in _if_holds(folder, links)]


def _if_holds(folder: Path, links: set[str]) -> Iterator[str]:
    # Processes come and go, and those of other users are not visible.
    with contextlib.suppress(OSError):
        if any(str(each.readlink()) in links for each in (folder / "fd").iterdir()):
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").strip()
            yield f"{folder.name} {escaped(command.decode(errors='replace')[:200])}"


def main() -> None:
    port = int(sys.argv[1])
    holders = port_holders(port)
    for holder in holders:
        print(f"port {port} is held by process {holder}")
    if not holders:
        print(f"port {port} is held by a process of another user")


if __name__ == "__main__":
    main()
