"""The options of streams groups, read once from the node's options."""

from millstream.config import BrokerConfig
from millstream.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class StreamsSettings:
    """The table of options has the defaults. A group may have its own (`streams.*`)."""

    is_served: bool
    members_max: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    # How long a new group waits for more members.
    initial_rebalance_delay_ms: int
    # The shortest time between two targets of a group.
    assignment_interval_ms: int
    standby_replicas: int


def streams_settings(config: BrokerConfig, *, gather_ms: int | None) -> StreamsSettings:
    """`gather_ms` replaces the default of the initial delay; None keeps it."""
    delay = "group.streams.initial.rebalance.delay.ms"
    is_as_configured = gather_ms is None or config.is_set(delay)
    return StreamsSettings(
        is_served="streams" in config.list("group.coordinator.rebalance.protocols"),
        members_max=config.int("group.streams.max.size"),
        session_timeout_ms=config.int("group.streams.session.timeout.ms"),
        heartbeat_interval_ms=config.int("group.streams.heartbeat.interval.ms"),
        initial_rebalance_delay_ms=config.int(delay) if is_as_configured else gather_ms or 0,
        assignment_interval_ms=config.int("group.streams.assignment.interval.ms"),
        standby_replicas=config.int("group.streams.num.standby.replicas"),
    )
