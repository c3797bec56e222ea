"""Passes a request on to the leader, and its answer back: what other instances do with writes.

It is passed on once; an instance that gets it so and does not lead either refuses it.
"""

import asyncio
import http.client
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millstream.registry import errors
from millstream.registry.election import Identity

# Says that an instance has passed the request on: the next one must not do that again.
FORWARDED: Final = "x-forward"
# Of answers to writes: the offset that a reader must have reached to see them.
POSITION: Final = "x-registry-position"
# A client's headers that count for the leader, too.
_PASSED_ON: Final = ("authorization", "content-type", "accept")
_SECONDS_MAX: Final = 30.0
_ANSWER_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The leader's answer."""

    status: int
    body: bytes
    content_type: str
    position: int


async def forward(
    leader: Identity,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    trust: ssl.SSLContext | None,
) -> Forwarded:
    """`target` is the path with its query, as the client sent it. Raises RegistryError."""
    passed = {name: headers[name] for name in _PASSED_ON if name in headers}
    try:
        return await asyncio.to_thread(
            _ask, leader, method, target, {**passed, FORWARDED: "true"}, body, trust
        )
    except (OSError, http.client.HTTPException, ValueError) as failed:
        raise errors.forwarding_failed(f"{leader.url}: {failed}") from None


def _ask(
    leader: Identity,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
    trust: ssl.SSLContext | None,
) -> Forwarded:
    connection: http.client.HTTPConnection
    if leader.scheme == "https":
        connection = http.client.HTTPSConnection(
            leader.host, leader.port, timeout=_SECONDS_MAX, context=trust
        )
    else:
        connection = http.client.HTTPConnection(leader.host, leader.port, timeout=_SECONDS_MAX)
    try:
        connection.request(method, target, body=body, headers=dict(headers))
        answer = connection.getresponse()
        return Forwarded(
            status=answer.status,
            body=answer.read(_ANSWER_BYTES_MAX),
            content_type=answer.headers.get("content-type", ""),
            position=int(answer.headers.get(POSITION, 0)),
        )
    finally:
        connection.close()
