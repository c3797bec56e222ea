"""ProveNode (20003, ours): from here on this connection may do what only nodes may."""

import os
from typing import Final

from millstream.broker.node.state import NodeState
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode
from millstream.wire.apis.prove_node import ProveNodeRequest, ProveNodeResponse

_CHALLENGE_BYTES: Final = 32


def handle(node: NodeState, request: Request, body: ProveNodeRequest) -> ProveNodeResponse:
    connection = request.connection
    if not body.proof:
        connection.challenge = os.urandom(_CHALLENGE_BYTES)
        return ProveNodeResponse(error_code=KafkaCode.NONE, challenge=connection.challenge)
    # A challenge is good for one answer.
    challenge, connection.challenge = connection.challenge, None
    if challenge is None or not node.cluster.is_proof(body.node_id, challenge, bytes(body.proof)):
        return ProveNodeResponse(error_code=KafkaCode.CLUSTER_AUTHORIZATION_FAILED, challenge=b"")
    connection.proved_node_id = body.node_id
    return ProveNodeResponse(error_code=KafkaCode.NONE, challenge=b"")
