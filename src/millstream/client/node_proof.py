"""How nodes of a cluster know each other: by a secret that only they can read.

The secret is in the coordination store. A connection gets a random challenge and answers it
with a keyed hash, so the secret itself never travels and an old answer is worth nothing.
"""

import hashlib
import hmac
from typing import Final

from millstream.client.aio import Connection, NoAnswer
from millstream.errors import KafkaCode
from millstream.wire.apis.prove_node import ProveNodeRequest

_VERSION: Final = 0
_PURPOSE: Final = b"millstream node "


def node_proof(secret: bytes, challenge: bytes, node_id: int) -> bytes:
    text = _PURPOSE + node_id.to_bytes(4, "big", signed=True) + challenge
    return hmac.digest(secret, text, hashlib.sha256)


async def prove(
    connection: Connection, node_id: int, secret: bytes, *, timeout_seconds: float
) -> None:
    """Have the other end know which node this is. Raises NoAnswer where it does not believe it."""
    first = ProveNodeRequest(node_id=node_id, proof=b"")
    answer = await connection.ask(first, _VERSION, timeout_seconds=timeout_seconds)
    proof = node_proof(secret, bytes(answer.challenge), node_id)
    second = ProveNodeRequest(node_id=node_id, proof=proof)
    answer = await connection.ask(second, _VERSION, timeout_seconds=timeout_seconds)
    if answer.error_code != KafkaCode.NONE:
        raise NoAnswer("the other node does not know this one: is it of another cluster?")
