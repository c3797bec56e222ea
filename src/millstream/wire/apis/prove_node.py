"""ProveNode (20003, ours): a connection shows that a node of the cluster is at its other end.

Asked twice: without a proof for a challenge, then with the proof that answers it.
"""

from __future__ import annotations

from millstream.wire.message import Bytes, Int16, Int32, Message, Request


class ProveNodeRequest(Request["ProveNodeResponse"], key=20_003, versions=(0, 0), flexible_from=0):
    node_id: Int32
    # Empty to ask for a challenge.
    proof: Bytes


class ProveNodeResponse(Message):
    error_code: Int16
    challenge: Bytes
