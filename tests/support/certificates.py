"""An authority with certificates of a server and a client, made for one test."""

from datetime import UTC, datetime
from pathlib import Path

from millstream.security.certificate_authority import KeyAndCertificate, issue, new_authority

LOCAL = ("localhost", "127.0.0.1")


class Certificates:
    """PEM files below `folder`: ca.pem, and a file with key and certificate per name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = new_authority("Test CA", now=datetime.now(UTC), days=2)
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(self.authority.certificate)
        self.server = self.issue("server", hosts=LOCAL)

    def issue(self, name: str, *, hosts: tuple[str, ...] = ()) -> Path:
        """A file with a key and a new certificate; one of a server if it has hosts."""
        made = self.make(name, hosts=hosts)
        path = self.folder / f"{name}.pem"
        # As whole or not at all: a node may read it at any time.
        new = path.with_suffix(".new")
        new.write_bytes(made.key + made.certificate)
        new.replace(path)
        return path

    def make(self, name: str, *, hosts: tuple[str, ...] = ()) -> KeyAndCertificate:
        return issue(self.authority, name, hosts=hosts, now=datetime.now(UTC), days=1)
