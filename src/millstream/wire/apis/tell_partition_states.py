"""TellPartitionStates (20004, ours): the controller tells other nodes what it has just written."""

from __future__ import annotations

from millstream.wire.message import Bytes, Int16, Int32, Message, Request


class TellPartitionStatesRequest(
    Request["TellPartitionStatesResponse"], key=20_004, versions=(0, 0), flexible_from=0
):
    states: list[ToldPartitionState]


class ToldPartitionState(Message):
    """A partition's znode: its version after the write, and its data."""

    topic: str
    partition: Int32
    version: Int32
    data: Bytes


class TellPartitionStatesResponse(Message):
    error_code: Int16
