"""What the doctor checks for a node: this machine, and the broker that commands would use."""

import os
import shutil
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.cli.address import parse_address
from millstream.cli.failure import CommandFailed
from millstream.cli.port_holder import port_holders

_PYTHON_MIN: Final = (3, 11)
_DESCRIPTORS_MIN: Final = 4096
_FREE_BYTES_MIN: Final = 1 << 30
_MOUNTS: Final = Path("/proc/mounts")
_CONNECT_SECONDS_MAX: Final = 2.0
# Writes to these are not durable, or not in the order that recovery relies on.
_UNSAFE_FILE_SYSTEMS: Final = {"tmpfs", "overlay", "nfs", "nfs4", "cifs", "9p"}


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    is_good: bool
    # What was found and, for a problem, what to do.
    text: str


def check_python() -> list[Finding]:
    version = ".".join(str(part) for part in sys.version_info[:3])
    is_right = sys.version_info >= _PYTHON_MIN
    return [Finding("python", is_right, version if is_right else f"{version}; needs 3.11 or later")]


def check_descriptors() -> list[Finding]:
    """The soft limit does not matter: a node raises it to the hard one."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= _DESCRIPTORS_MIN:
        shown = "unlimited" if hard == resource.RLIM_INFINITY else f"{hard:,}"
        return [Finding("open files", True, f"limit {shown}")]
    text = (
        f"limit {hard:,}; a node needs one for each connection and segment: raise it to 100000 with"
        " LimitNOFILE= (systemd), --ulimit nofile= (docker) or ulimit -Hn"
    )
    return [Finding("open files", False, text)]


def check_disk(data_dir: Path) -> list[Finding]:
    """The file system that holds, or would hold, this directory."""
    place = data_dir.absolute()
    while not place.exists():
        place = place.parent
    findings = []
    free = shutil.disk_usage(place).free
    text = f"{free / 1e9:,.1f} GB free at {place}"
    if free < _FREE_BYTES_MIN:
        text += "; make room, choose another --data-dir, or set log.retention.bytes"
    findings.append(Finding("disk space", free >= _FREE_BYTES_MIN, text))
    if not os.access(place, os.W_OK):
        remedy = f"choose another --data-dir, or: chown {os.getuid()} {place}"
        findings.append(Finding("data directory", False, f"{place} is not writable; {remedy}"))
    kind = file_system_of(place, _mounts())
    if kind in _UNSAFE_FILE_SYSTEMS:
        text = f"{kind}: fine for trying things; for data that must survive use ext4 or xfs"
    else:
        text = kind
    findings.append(Finding("file system", True, text))
    return findings


def _mounts() -> str:
    """Empty in a jail without /proc."""
    try:
        return _MOUNTS.read_text()
    except OSError:
        return ""


def file_system_of(place: Path, mounts: str) -> str:
    """The type of the file system of a path, from the text of /proc/mounts."""
    best, kind = "", "unknown"
    for line in mounts.splitlines():
        _, point, found, *_ = line.split()
        point = point.replace("\\040", " ")
        is_inside = place == Path(point) or Path(point) in place.parents
        if is_inside and len(point) >= len(best):
            best, kind = point, found
    return kind


def check_port(port: int, *, is_broker: bool) -> list[Finding]:
    """Whether a node could listen there, or a broker does."""
    holders = port_holders(port)
    if is_broker:
        return [Finding(f"port {port}", True, f"a broker answers ({_joined(holders)})")]
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as failed:
            text = (
                f"{failed.strerror} ({_joined(holders)}); stop that program, or give the node"
                " another port: millstream dev --port 0"
            )
            return [Finding(f"port {port}", False, text)]
    return [Finding(f"port {port}", True, "free")]


def _joined(holders: Sequence[str]) -> str:
    return f"held by {', '.join(holders)}" if holders else "held by a program of another user"


def check_broker(bootstrap: str, *, is_required: bool) -> list[Finding]:
    """Whether the broker answers, and whether this machine reaches what it advertises."""
    from millstream.cli.connection import Cluster

    host, port = parse_address(bootstrap.split(",")[0].strip())
    is_local = host in ("127.0.0.1", "localhost", "::1")
    try:
        with Cluster(bootstrap) as cluster:
            nodes = cluster.live_nodes()
            first = str(cluster.first)
    except CommandFailed as failed:
        if is_required:
            return [Finding("broker", False, str(failed))]
        text = f"none at {bootstrap}; start one with: millstream dev"
        free = check_port(port, is_broker=False) if is_local else []
        return [Finding("broker", True, text), *free]
    findings = [Finding("broker", True, f"{first} answers; {len(nodes)} alive in the cluster")]
    for node in nodes:
        findings.append(_advertised(node.broker_id, node.host, node.port, first))
    return findings


def _advertised(node_id: int, host: str, port: int, first: str) -> Finding:
    what, address = f"advertised address of node {node_id}", f"{host}:{port}"
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS_MAX).close()
    except OSError as failed:
        text = (
            f"{address} cannot be reached from here ({failed.strerror or failed}), although {first}"
            " can: clients will hang. Set advertised.listeners to an address that clients reach"
        )
        return Finding(what, False, text)
    return Finding(what, True, address)
