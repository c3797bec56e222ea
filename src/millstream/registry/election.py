"""Which instance writes: the messages of the group, and the choice. No I/O.

Instances are members of a classic group with the protocol type `sr`. Each says where it is; the
leader of the group, which any of them may be, chooses the instance that leads the registry and
tells all. The messages are those of other registries, so they could be in the same group.
"""

import json
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

PROTOCOL_TYPE: Final = "sr"
PROTOCOL: Final = "v0"
_VERSION: Final = 1
_NO_ERROR: Final = 0


@dataclass(frozen=True, slots=True)
class Identity:
    """An instance, as others reach it."""

    host: str
    port: int
    scheme: str = "http"
    may_lead: bool = True
    is_leader: bool = False

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def identity_of(url: str) -> Identity:
    """Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise ValueError(f"{url!r} is not http://HOST:PORT or https://HOST:PORT")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return Identity(parts.hostname, port, parts.scheme)


def write_identity(identity: Identity) -> bytes:
    fields = {
        "version": _VERSION,
        "host": identity.host,
        "port": identity.port,
        "master_eligibility": identity.may_lead,
        "scheme": identity.scheme,
        "leader": identity.is_leader,
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def read_identity(data: bytes) -> Identity:
    """Raises ValueError."""
    try:
        fields = json.loads(data)
        return Identity(
            host=str(fields["host"]),
            port=int(fields["port"]),
            scheme=str(fields.get("scheme") or "http"),
            may_lead=bool(fields.get("master_eligibility", True)),
            is_leader=bool(fields.get("leader", False)),
        )
    except (KeyError, TypeError, AttributeError) as wrong:
        raise ValueError(f"not the identity of a schema registry: {wrong!r}") from None


@dataclass(frozen=True, slots=True)
class Election:
    """The outcome; without a leader if nobody may lead."""

    leader_member_id: str | None
    leader: Identity | None


def elect(members: dict[str, Identity]) -> Election:
    """The one that leads already, else the first address: every member would choose the same."""
    eligible = [(member_id, one) for member_id, one in members.items() if one.may_lead]
    if not eligible:
        return Election(None, None)
    member_id, identity = min(eligible, key=lambda each: (not each[1].is_leader, each[1].url))
    return Election(member_id, identity)


def write_election(election: Election) -> bytes:
    leader = election.leader
    fields = {
        "version": _VERSION,
        "error": _NO_ERROR,
        "master": election.leader_member_id,
        "master_identity": None if leader is None else json.loads(write_identity(leader)),
    }
    return json.dumps(fields, separators=(",", ":")).encode()


def read_election(data: bytes) -> Election:
    """Raises ValueError."""
    try:
        fields = json.loads(data)
        identity = fields.get("master_identity")
        leader = None if identity is None else read_identity(json.dumps(identity).encode())
        return Election(fields.get("master"), leader)
    except (TypeError, AttributeError) as wrong:
        raise ValueError(f"not an assignment of a schema registry: {wrong!r}") from None
