"""What each API needs: the one table of (API, version) to (resource, operation).

Handlers name resources ("this request is about topic a"); the operation and the error that a
denial shows come from here. An API without a row cannot be served: a test compares the table
with the APIs that are.

A rule for the whole request is checked before its handler runs. Rules for single resources
are checked by handlers. A step distinguishes rules of one API for the same type of resource:
Metadata describes topics, and in another step creates them.
"""

from enum import Enum
from functools import cache
from typing import Final

from millstream.errors import KafkaCode
from millstream.lazy_dataclass import dataclass
from millstream.security.acl import Operation, ResourceType

_LAST_VERSION: Final = 2**15 - 1

_CODES: Final = {
    ResourceType.TOPIC: KafkaCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: KafkaCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: KafkaCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: KafkaCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: KafkaCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class Denied(Enum):
    """What the client sees."""

    REQUEST = "the whole request fails"
    EACH = "each resource that it names gets the error"
    OMITTED = "the resource is not listed"
    HIDDEN = "a topic that is named by its id is unknown; by its name, it gets the error"
    # Another rule may still allow it, or something smaller is left out.
    QUIET = "nothing"


@dataclass(frozen=True, slots=True)
class Rule:
    resource_type: ResourceType
    operation: Operation
    denied: Denied
    step: str = ""
    first_version: int = 0
    last_version: int = _LAST_VERSION

    @property
    def code(self) -> KafkaCode:
        return _CODES[self.resource_type]


@dataclass(frozen=True, slots=True)
class Row:
    """An API without rules is open to everybody."""

    name: str
    rules: tuple[Rule, ...]


def _row(name: str, *rules: Rule) -> Row:
    return Row(name, rules)


_TOPIC: Final = ResourceType.TOPIC
_GROUP: Final = ResourceType.GROUP
_CLUSTER: Final = ResourceType.CLUSTER
_ID: Final = ResourceType.TRANSACTIONAL_ID
_READ: Final = Operation.READ
_WRITE: Final = Operation.WRITE
_CREATE: Final = Operation.CREATE
_DELETE: Final = Operation.DELETE
_ALTER: Final = Operation.ALTER
_DESCRIBE: Final = Operation.DESCRIBE
_DESCRIBE_CONFIGS: Final = Operation.DESCRIBE_CONFIGS
_ALTER_CONFIGS: Final = Operation.ALTER_CONFIGS
_REQUEST, _EACH, _OMITTED = Denied.REQUEST, Denied.EACH, Denied.OMITTED

# Steps.
REPLICA: Final = "replica"
AUTO_CREATE: Final = "auto-create"
LISTING: Final = "listing"
SHOW: Final = "show"
BY_NODE: Final = "by a node"
WITHOUT_ID: Final = "without a transactional id"
TWO_PHASE: Final = "two-phase commit"
FOR_ANOTHER: Final = "for another user"

_CONFIGS_SEEN: Final = (
    Rule(_TOPIC, _DESCRIBE_CONFIGS, _EACH),
    Rule(_CLUSTER, _DESCRIBE_CONFIGS, _EACH),
    Rule(_GROUP, _DESCRIBE_CONFIGS, _EACH),
)
_CONFIGS_CHANGED: Final = (
    Rule(_TOPIC, _ALTER_CONFIGS, _EACH),
    Rule(_CLUSTER, _ALTER_CONFIGS, _EACH),
    Rule(_GROUP, _ALTER_CONFIGS, _EACH),
)

TABLE: Final[dict[int, Row]] = {
    0: _row("produce", Rule(_ID, _WRITE, _EACH), Rule(_TOPIC, _WRITE, _EACH)),
    1: _row(
        "fetch",
        Rule(_TOPIC, _READ, _EACH),
        Rule(_CLUSTER, Operation.CLUSTER_ACTION, _EACH, REPLICA),
    ),
    2: _row("list_offsets", Rule(_TOPIC, _DESCRIBE, _EACH)),
    3: _row(
        "metadata",
        Rule(_TOPIC, _DESCRIBE, Denied.HIDDEN),
        Rule(_TOPIC, _DESCRIBE, _OMITTED, LISTING),
        Rule(_CLUSTER, _CREATE, Denied.QUIET, AUTO_CREATE),
        Rule(_TOPIC, _CREATE, _EACH, AUTO_CREATE),
        Rule(_CLUSTER, _DESCRIBE, Denied.QUIET),
    ),
    8: _row("offset_commit", Rule(_GROUP, _READ, _EACH), Rule(_TOPIC, _READ, _EACH)),
    9: _row(
        "offset_fetch",
        Rule(_GROUP, _DESCRIBE, _EACH),
        Rule(_TOPIC, _DESCRIBE, _EACH),
        Rule(_TOPIC, _DESCRIBE, _OMITTED, LISTING),
    ),
    10: _row(
        "find_coordinator",
        Rule(_GROUP, _DESCRIBE, _EACH),
        Rule(_ID, _DESCRIBE, _EACH),
        # Of a share partition: only nodes ask for it.
        Rule(_CLUSTER, Operation.CLUSTER_ACTION, _EACH),
    ),
    11: _row("join_group", Rule(_GROUP, _READ, _EACH)),
    12: _row("heartbeat", Rule(_GROUP, _READ, _EACH)),
    13: _row("leave_group", Rule(_GROUP, _READ, _EACH)),
    14: _row("sync_group", Rule(_GROUP, _READ, _EACH)),
    15: _row("describe_groups", Rule(_GROUP, _DESCRIBE, _EACH)),
    16: _row(
        "list_groups",
        Rule(_CLUSTER, _DESCRIBE, Denied.QUIET),
        Rule(_GROUP, _DESCRIBE, _OMITTED),
    ),
    17: _row("sasl_handshake"),
    18: _row("api_versions"),
    19: _row(
        "create_topics",
        Rule(_CLUSTER, _CREATE, Denied.QUIET),
        Rule(_TOPIC, _CREATE, _EACH),
        Rule(_TOPIC, _DESCRIBE_CONFIGS, Denied.QUIET, SHOW),
    ),
    20: _row(
        "delete_topics",
        Rule(_TOPIC, _DELETE, _EACH),
        # Named by its id, its name is not shown.
        Rule(_TOPIC, _DESCRIBE, Denied.QUIET, SHOW),
    ),
    21: _row("delete_records", Rule(_TOPIC, _DELETE, _EACH)),
    22: _row(
        "init_producer_id",
        Rule(_ID, _WRITE, _EACH),
        Rule(_ID, Operation.TWO_PHASE_COMMIT, _EACH, TWO_PHASE),
        # Or WRITE on any topic (KIP-679).
        Rule(_CLUSTER, Operation.IDEMPOTENT_WRITE, Denied.QUIET, WITHOUT_ID),
        Rule(_TOPIC, _WRITE, Denied.QUIET, WITHOUT_ID),
    ),
    23: _row(
        "offset_for_leader_epoch",
        Rule(_TOPIC, _DESCRIBE, _EACH),
        Rule(_CLUSTER, Operation.CLUSTER_ACTION, Denied.QUIET, REPLICA),
    ),
    24: _row(
        "add_partitions_to_txn",
        Rule(_ID, _WRITE, _EACH, last_version=3),
        Rule(_TOPIC, _WRITE, _EACH, last_version=3),
        Rule(_CLUSTER, Operation.CLUSTER_ACTION, _REQUEST, first_version=4),
    ),
    25: _row("add_offsets_to_txn", Rule(_ID, _WRITE, _EACH), Rule(_GROUP, _READ, _EACH)),
    26: _row("end_txn", Rule(_ID, _WRITE, _EACH)),
    27: _row(
        "write_txn_markers",
        Rule(_CLUSTER, Operation.CLUSTER_ACTION, Denied.QUIET, BY_NODE),
        Rule(_CLUSTER, _ALTER, _EACH),
    ),
    28: _row(
        "txn_offset_commit",
        Rule(_ID, _WRITE, _EACH),
        Rule(_GROUP, _READ, _EACH),
        Rule(_TOPIC, _READ, _EACH),
    ),
    29: _row("describe_acls", Rule(_CLUSTER, _DESCRIBE, _REQUEST)),
    30: _row("create_acls", Rule(_CLUSTER, _ALTER, _REQUEST)),
    31: _row("delete_acls", Rule(_CLUSTER, _ALTER, _REQUEST)),
    32: _row("describe_configs", *_CONFIGS_SEEN),
    33: _row("alter_configs", *_CONFIGS_CHANGED),
    34: _row("alter_replica_log_dirs", Rule(_CLUSTER, _ALTER, _REQUEST)),
    35: _row("describe_log_dirs", Rule(_CLUSTER, _DESCRIBE, _REQUEST)),
    36: _row("sasl_authenticate"),
    37: _row("create_partitions", Rule(_TOPIC, _ALTER, _EACH)),
    # A token is for its requester; only the owner and renewers see and use it.
    38: _row(
        "create_delegation_token",
        Rule(ResourceType.USER, Operation.CREATE_TOKENS, _EACH, FOR_ANOTHER),
    ),
    39: _row("renew_delegation_token"),
    40: _row("expire_delegation_token"),
    41: _row(
        "describe_delegation_token",
        Rule(ResourceType.DELEGATION_TOKEN, _DESCRIBE, Denied.QUIET),
        Rule(ResourceType.USER, Operation.DESCRIBE_TOKENS, _OMITTED),
    ),
    42: _row("delete_groups", Rule(_GROUP, _DELETE, _EACH)),
    43: _row("elect_leaders", Rule(_CLUSTER, _ALTER, _REQUEST)),
    44: _row("incremental_alter_configs", *_CONFIGS_CHANGED),
    45: _row("alter_partition_reassignments", Rule(_CLUSTER, _ALTER, _REQUEST)),
    46: _row("list_partition_reassignments", Rule(_CLUSTER, _DESCRIBE, _REQUEST)),
    47: _row("offset_delete", Rule(_GROUP, _DELETE, _EACH), Rule(_TOPIC, _READ, _EACH)),
    48: _row("describe_client_quotas", Rule(_CLUSTER, _DESCRIBE_CONFIGS, _REQUEST)),
    49: _row("alter_client_quotas", Rule(_CLUSTER, _ALTER_CONFIGS, _REQUEST)),
    50: _row("describe_user_scram_credentials", Rule(_CLUSTER, _DESCRIBE, _REQUEST)),
    51: _row("alter_user_scram_credentials", Rule(_CLUSTER, _ALTER, _REQUEST)),
    55: _row("describe_quorum", Rule(_CLUSTER, _DESCRIBE, _REQUEST)),
    57: _row("update_features", Rule(_CLUSTER, _ALTER, _REQUEST)),
    # Everybody may see the nodes; only the operations need DESCRIBE.
    60: _row("describe_cluster", Rule(_CLUSTER, _DESCRIBE, Denied.QUIET)),
    61: _row("describe_producers", Rule(_TOPIC, _READ, _EACH)),
    64: _row("unregister_broker", Rule(_CLUSTER, _ALTER, _REQUEST)),
    65: _row(
        "describe_transactions",
        Rule(_ID, _DESCRIBE, _EACH),
        Rule(_TOPIC, _DESCRIBE, _OMITTED),
    ),
    66: _row("list_transactions", Rule(_ID, _DESCRIBE, _OMITTED)),
    68: _row(
        "consumer_group_heartbeat", Rule(_GROUP, _READ, _EACH), Rule(_TOPIC, _DESCRIBE, _EACH)
    ),
    69: _row(
        "consumer_group_describe", Rule(_GROUP, _DESCRIBE, _EACH), Rule(_TOPIC, _DESCRIBE, _EACH)
    ),
    # Clients report about themselves; who may alter the cluster's options decides what.
    71: _row("get_telemetry_subscriptions"),
    72: _row("push_telemetry"),
    74: _row("list_config_resources", Rule(_CLUSTER, _DESCRIBE_CONFIGS, _REQUEST)),
    75: _row(
        "describe_topic_partitions",
        Rule(_TOPIC, _DESCRIBE, _EACH),
        Rule(_TOPIC, _DESCRIBE, _OMITTED, LISTING),
    ),
    76: _row("share_group_heartbeat", Rule(_GROUP, _READ, _EACH), Rule(_TOPIC, _DESCRIBE, _EACH)),
    77: _row(
        "share_group_describe", Rule(_GROUP, _DESCRIBE, _EACH), Rule(_TOPIC, _DESCRIBE, _EACH)
    ),
    78: _row("share_fetch", Rule(_GROUP, _READ, _EACH), Rule(_TOPIC, _READ, _EACH)),
    79: _row("share_acknowledge", Rule(_GROUP, _READ, _EACH), Rule(_TOPIC, _READ, _EACH)),
    # Only nodes that have proved to be one.
    83: _row("initialize_share_group_state"),
    84: _row("read_share_group_state"),
    85: _row("write_share_group_state"),
    86: _row("delete_share_group_state"),
    87: _row("read_share_group_state_summary"),
    88: _row(
        "streams_group_heartbeat",
        Rule(_GROUP, _READ, _EACH),
        Rule(_TOPIC, _DESCRIBE, _EACH),
        # Internal topics are created in the name of the client; a status says what is missing.
        Rule(_CLUSTER, _CREATE, Denied.QUIET, AUTO_CREATE),
        Rule(_TOPIC, _CREATE, Denied.QUIET, AUTO_CREATE),
    ),
    89: _row(
        "streams_group_describe", Rule(_GROUP, _DESCRIBE, _EACH), Rule(_TOPIC, _DESCRIBE, _EACH)
    ),
    90: _row(
        "describe_share_group_offsets",
        Rule(_GROUP, _DESCRIBE, _EACH),
        Rule(_TOPIC, _DESCRIBE, _EACH),
        Rule(_TOPIC, _DESCRIBE, _OMITTED, LISTING),
    ),
    91: _row("alter_share_group_offsets", Rule(_GROUP, _READ, _EACH), Rule(_TOPIC, _READ, _EACH)),
    92: _row(
        "delete_share_group_offsets", Rule(_GROUP, _DELETE, _EACH), Rule(_TOPIC, _READ, _EACH)
    ),
    # Not Kafka's. Both act on transactions `millstream:<group>:<member>` of all its members.
    20000: _row("commit_group", Rule(_ID, _WRITE, _EACH)),
    20001: _row("last_batch", Rule(_ID, _WRITE, _EACH)),
    # Compaction removes records, as a change of the topic's options would.
    20002: _row("compact_topic", Rule(_TOPIC, _ALTER, _EACH)),
    20003: _row("prove_node"),
    # Only nodes that have proved to be one.
    20004: _row("tell_partition_states"),
    20005: _row("peek_share_group", Rule(_GROUP, _DESCRIBE, _EACH), Rule(_TOPIC, _DESCRIBE, _EACH)),
}


@cache
def find_rule(api_key: int, version: int, resource_type: ResourceType, step: str = "") -> Rule:
    """Raises LookupError if the API has no such rule: that is a bug in its handler."""
    for rule in TABLE[api_key].rules:
        if (rule.resource_type, rule.step) == (resource_type, step) and (
            rule.first_version <= version <= rule.last_version
        ):
            return rule
    raise LookupError(f"{TABLE[api_key].name} has no rule for {resource_type.name} {step}")


@cache
def request_rule(api_key: int, version: int) -> Rule | None:
    """What the request needs before its handler runs."""
    for rule in TABLE[api_key].rules:
        if rule.denied is Denied.REQUEST and rule.first_version <= version <= rule.last_version:
            return rule
    return None
