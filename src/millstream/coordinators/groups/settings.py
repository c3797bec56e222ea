"""The options of groups and offsets, read once from the node's options."""

from typing import Final

from millstream.config import BrokerConfig
from millstream.coordinators.streams.settings import StreamsSettings, streams_settings
from millstream.lazy_dataclass import dataclass

# How long a new group on a single node waits for more members, unless configured: too
# short to notice, long enough for consumers that start together. Without it the first
# would be alone in its generation, and the others would wait for its heartbeat.
GATHER_MS: Final = 20
# If a second member joins in that time, more will follow, and a busy machine may delay
# them: a late member waits seconds for the others' heartbeats.
GATHER_MORE_MS: Final = 100
GATHER_MAX_MS: Final = 1_000
# The threads of one Kafka Streams application join one by one, each with its own connection.
STREAMS_GATHER_MS: Final = 200


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The table of options has the defaults."""

    initial_rebalance_delay_ms: int
    # The wait is extended by this while members keep joining (None: by the same again), but
    # not beyond the maximum and the rebalance timeout.
    initial_rebalance_extension_ms: int | None
    initial_rebalance_wait_max_ms: int
    session_timeout_min_ms: int
    session_timeout_max_ms: int
    classic_members_max: int
    consumer_members_max: int
    consumer_session_timeout_ms: int
    consumer_heartbeat_interval_ms: int
    assignors: tuple[str, ...]
    may_upgrade: bool
    may_downgrade: bool
    serves_consumer_protocol: bool
    share_members_max: int
    share_session_timeout_ms: int
    share_heartbeat_interval_ms: int
    # If the share coordinator has not begun a partition by then, it is asked again.
    share_initialize_retry_ms: int
    offset_metadata_length_max: int
    offsets_retention_ms: int
    # The largest batch that the offsets topic accepts; a decision is one batch.
    batch_bytes_max: int
    streams: StreamsSettings


def group_settings(config: BrokerConfig, *, nodes: int) -> GroupSettings:
    delay = "group.initial.rebalance.delay.ms"
    waits_as_configured = config.is_set(delay) or nodes > 1
    policy = config.string("group.consumer.migration.policy").lower()
    return GroupSettings(
        initial_rebalance_delay_ms=config.int(delay) if waits_as_configured else GATHER_MS,
        initial_rebalance_extension_ms=None if waits_as_configured else GATHER_MORE_MS,
        initial_rebalance_wait_max_ms=2**31 - 1 if waits_as_configured else GATHER_MAX_MS,
        session_timeout_min_ms=config.int("group.min.session.timeout.ms"),
        session_timeout_max_ms=config.int("group.max.session.timeout.ms"),
        classic_members_max=config.int("group.max.size"),
        consumer_members_max=config.int("group.consumer.max.size"),
        consumer_session_timeout_ms=config.int("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=config.int("group.consumer.heartbeat.interval.ms"),
        assignors=config.list("group.consumer.assignors"),
        may_upgrade=policy in ("bidirectional", "upgrade"),
        may_downgrade=policy in ("bidirectional", "downgrade"),
        serves_consumer_protocol="consumer" in config.list("group.coordinator.rebalance.protocols"),
        share_members_max=config.int("group.share.max.size"),
        share_session_timeout_ms=config.int("group.share.session.timeout.ms"),
        share_heartbeat_interval_ms=config.int("group.share.heartbeat.interval.ms"),
        share_initialize_retry_ms=config.int("group.share.initialize.retry.interval.ms"),
        offset_metadata_length_max=config.int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.int("offsets.retention.minutes") * 60_000,
        batch_bytes_max=config.int("message.max.bytes"),
        streams=streams_settings(config, gather_ms=None if nodes > 1 else STREAMS_GATHER_MS),
    )
