"""Made-up credentials for a broker with security: a certificate authority and one user."""

import base64
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from millstream.lazy_dataclass import dataclass
from millstream.testing.client_config import Access

_PROTOCOLS: Final = ("ssl", "sasl_ssl", "sasl_plaintext")
_USER: Final = "tester"
_DAYS: Final = 2


@dataclass(frozen=True, slots=True)
class Credentials:
    protocol: str
    password: str
    # None without TLS.
    ca_file: Path | None
    server_file: Path | None

    @classmethod
    def make(cls, protocol: str, folder: Path) -> Self:
        if protocol not in _PROTOCOLS:
            raise ValueError(f"security is one of {', '.join(_PROTOCOLS)}, not {protocol!r}")
        password = base64.urlsafe_b64encode(os.urandom(12)).decode()
        if protocol == "sasl_plaintext":
            return cls(protocol, password, None, None)
        # Imported late: it needs the extra `security`.
        from millstream.security.certificate_authority import issue, new_authority

        now = datetime.now(UTC)
        authority = new_authority("Millstream test authority", now=now, days=_DAYS)
        server = issue(
            authority, "localhost", hosts=("localhost", "127.0.0.1"), now=now, days=_DAYS
        )
        ca_file, server_file = folder / "ca.pem", folder / "server.pem"
        ca_file.write_bytes(authority.certificate)
        server_file.touch(mode=0o600)
        server_file.write_bytes(server.key + server.certificate)
        return cls(protocol, password, ca_file, server_file)

    def access(self, bootstrap: str) -> Access:
        return Access(bootstrap, self.protocol.upper(), self.ca_file, _USER, self.password)


def secured_settings(credentials: Credentials | None) -> dict[str, str]:
    """Options of the node; the user is a super user, should the test set an authorizer."""
    if credentials is None:
        return {}
    found = {}
    if credentials.server_file is not None:
        found["ssl.keystore.location"] = str(credentials.server_file)
    if credentials.protocol.startswith("sasl"):
        found |= {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.scram.initial.users": (
                f"SCRAM-SHA-512=[name={_USER},password={credentials.password}]"
            ),
            "super.users": f"User:{_USER}",
        }
    return found
