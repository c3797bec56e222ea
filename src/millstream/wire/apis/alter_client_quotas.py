"""AlterClientQuotas (49): set or remove quotas of users, client ids and addresses."""

from __future__ import annotations

from millstream.wire.message import Float64, Int16, Int32, Message, Request


class AlterClientQuotasRequest(
    Request["AlterClientQuotasResponse"], key=49, versions=(0, 1), flexible_from=1
):
    entries: list[AlteredQuotas]
    validate_only: bool


class AlteredQuotas(Message):
    entity: list[AlteredQuotaEntity]
    ops: list[QuotaOperation]


class AlteredQuotaEntity(Message):
    entity_type: str
    # None: the default.
    entity_name: str | None


class QuotaOperation(Message):
    key: str
    value: Float64
    remove: bool


class AlterClientQuotasResponse(Message):
    throttle_time_ms: Int32 = 0
    entries: list[AlteredQuotasResult]


class AlteredQuotasResult(Message):
    error_code: Int16
    error_message: str | None
    entity: list[AlteredQuotaEntity]
