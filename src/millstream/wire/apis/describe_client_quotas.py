"""DescribeClientQuotas (48): the quotas of users, client ids and addresses."""

from __future__ import annotations

from millstream.wire.message import Float64, Int8, Int16, Int32, Message, Request


class DescribeClientQuotasRequest(
    Request["DescribeClientQuotasResponse"], key=48, versions=(0, 1), flexible_from=1
):
    components: list[QuotaComponent]
    strict: bool


class QuotaComponent(Message):
    entity_type: str
    match_type: Int8
    match: str | None


class DescribeClientQuotasResponse(Message):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None
    entries: list[DescribedQuotas] | None


class DescribedQuotas(Message):
    entity: list[QuotaEntity]
    values: list[QuotaValue]


class QuotaEntity(Message):
    entity_type: str
    entity_name: str | None


class QuotaValue(Message):
    key: str
    value: Float64
