"""The API table: every request this node answers, and in which versions.

ApiVersions is answered from here and dispatch checks against here, so what is listed is
what works, with two exceptions. Produce is listed from 0: librdkafka before 2.11.1 turns
compression off unless it is, although nobody sends it. InitProducerId 6 is read and not
listed: its fields are for two-phase commit (KIP-939), which is refused.
"""

from dataclasses import dataclass
from enum import IntEnum


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75
    # Our own, from 20000 up: see `vendor`.
    COMMIT_GROUP = 20000
    LAST_BATCH = 20001
    COMPACT_TOPIC = 20002


NEVER_FLEXIBLE = 32767


@dataclass(frozen=True, slots=True)
class Api:
    key: ApiKey
    min_version: int
    max_version: int
    flexible_from: int
    min_listed: int = -1
    max_listed: int = -1

    @property
    def lowest_listed(self) -> int:
        return self.min_version if self.min_listed < 0 else self.min_listed

    @property
    def highest_listed(self) -> int:
        return self.max_version if self.max_listed < 0 else self.max_listed

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_from

    def supports(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version


APIS: dict[int, Api] = {
    api.key: api
    for api in (
        Api(ApiKey.PRODUCE, 3, 13, flexible_from=9, min_listed=0),
        Api(ApiKey.FETCH, 4, 18, flexible_from=12),
        Api(ApiKey.LIST_OFFSETS, 1, 11, flexible_from=6),
        Api(ApiKey.METADATA, 0, 13, flexible_from=9),
        Api(ApiKey.OFFSET_COMMIT, 2, 10, flexible_from=8),
        Api(ApiKey.OFFSET_FETCH, 1, 10, flexible_from=6),
        Api(ApiKey.FIND_COORDINATOR, 0, 6, flexible_from=3),
        Api(ApiKey.JOIN_GROUP, 0, 9, flexible_from=6),
        Api(ApiKey.HEARTBEAT, 0, 4, flexible_from=4),
        Api(ApiKey.LEAVE_GROUP, 0, 5, flexible_from=4),
        Api(ApiKey.SYNC_GROUP, 0, 5, flexible_from=4),
        Api(ApiKey.DESCRIBE_GROUPS, 0, 6, flexible_from=5),
        Api(ApiKey.LIST_GROUPS, 0, 5, flexible_from=3),
        Api(ApiKey.API_VERSIONS, 0, 4, flexible_from=3),
        Api(ApiKey.CREATE_TOPICS, 2, 7, flexible_from=5),
        Api(ApiKey.DELETE_TOPICS, 1, 6, flexible_from=4),
        Api(ApiKey.DELETE_RECORDS, 0, 2, flexible_from=2),
        Api(ApiKey.INIT_PRODUCER_ID, 0, 6, flexible_from=2, max_listed=5),
        Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, flexible_from=4),
        Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, flexible_from=3),
        Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, flexible_from=3),
        Api(ApiKey.END_TXN, 0, 5, flexible_from=3),
        Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, flexible_from=1),
        Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, flexible_from=3),
        Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, flexible_from=4),
        Api(ApiKey.ALTER_CONFIGS, 0, 2, flexible_from=2),
        Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, flexible_from=2),
        Api(ApiKey.CREATE_PARTITIONS, 0, 3, flexible_from=2),
        Api(ApiKey.DELETE_GROUPS, 0, 2, flexible_from=2),
        Api(ApiKey.ELECT_LEADERS, 0, 2, flexible_from=2),
        Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, flexible_from=1),
        Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, flexible_from=0),
        Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, flexible_from=0),
        Api(ApiKey.OFFSET_DELETE, 0, 0, flexible_from=NEVER_FLEXIBLE),
        Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, flexible_from=0),
        Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, flexible_from=0),
        Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, flexible_from=0),
        Api(ApiKey.LIST_TRANSACTIONS, 0, 2, flexible_from=0),
        Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, flexible_from=0),
        Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, flexible_from=0),
        Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, flexible_from=0),
        Api(ApiKey.COMMIT_GROUP, 0, 0, flexible_from=0),
        Api(ApiKey.LAST_BATCH, 0, 0, flexible_from=0),
        Api(ApiKey.COMPACT_TOPIC, 0, 0, flexible_from=0),
    )
}
