"""FindCoordinator (10): which node coordinates a group or a transactional id."""

from __future__ import annotations

from millstream.wire.message import Int8, Int16, Int32, Message, Request, since


class FindCoordinatorRequest(
    Request["FindCoordinatorResponse"], key=10, versions=(0, 6), flexible_from=3
):
    key: str = since(0, until=3, default="")
    key_type: Int8 = since(1, default=0)
    coordinator_keys: list[str] = since(4, default=[])


class FindCoordinatorResponse(Message):
    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16 = since(0, until=3, default=0)
    error_message: str | None = since(1, until=3, default=None)
    node_id: Int32 = since(0, until=3, default=-1)
    host: str = since(0, until=3, default="")
    port: Int32 = since(0, until=3, default=-1)
    coordinators: list[Coordinator] = since(4, default=[])


class Coordinator(Message):
    key: str
    node_id: Int32
    host: str
    port: Int32
    error_code: Int16
    error_message: str | None
