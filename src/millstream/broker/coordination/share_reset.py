"""Where a share group starts in a partition that it has never read: `share.auto.offset.reset`.

The default is `latest`: only records that come after the group's first fetch. `share_partitions`
asks once and stores the answer.
"""

from millstream.config.durations import iso_duration_ms
from millstream.errors import KafkaCode, KafkaError
from millstream.replication.partition import Partition

LATEST = "latest"
EARLIEST = "earliest"
BY_DURATION = "by_duration:"


def start_offset_of(rule: str, partition: Partition, *, now_ms: int) -> int:
    """Raises KafkaError while a new leader does not know what is committed."""
    if rule == EARLIEST:
        return partition.log.log_start_offset
    if not partition.is_settled:
        raise KafkaError(KafkaCode.COORDINATOR_NOT_AVAILABLE)
    end = partition.high_watermark
    if rule == LATEST:
        return end
    since_ms = max(now_ms - iso_duration_ms(rule.removeprefix(BY_DURATION)), 0)
    # Once per group and partition.
    found = partition.offset_at_once(since_ms, upto_offset=end)
    return end if found is None else found.offset
