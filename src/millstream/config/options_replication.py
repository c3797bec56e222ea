"""Options of the node: replication and quotas between nodes."""

from typing import Final

from millstream.config.option import LONG_MAX, Option
from millstream.config.words import BOOLEAN, INT, LONG, STRING, WORKS

TITLE: Final = "Replication and quotas between nodes"

OPTIONS: Final = (
    Option(
        "min.insync.replicas",
        INT,
        1,
        "How many replicas must be in sync for acks=all, never more than the partition has.",
        WORKS,
        minimum=1,
        is_dynamic=True,
    ),
    Option(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        "Let a replica that is behind become leader, at the price of lost records.",
        is_dynamic=True,
    ),
    Option(
        "unclean.leader.election.interval.ms",
        LONG,
        300000,
        "How often partitions without a leader are looked at for such an election.",
        minimum=1,
    ),
    Option(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        True,
        "Give leadership back to the preferred replica by itself.",
    ),
    Option(
        "leader.imbalance.check.interval.seconds",
        LONG,
        300,
        "How often leaderships are compared with the preferred ones.",
        minimum=1,
    ),
    Option(
        "leader.imbalance.per.broker.percentage",
        INT,
        10,
        "The share of leaderships out of place that is put up with.",
    ),
    Option(
        "num.replica.fetchers", INT, 1, "Fetchers towards each leader.", minimum=1, is_dynamic=True
    ),
    Option(
        "num.replica.alter.log.dirs.threads",
        INT,
        None,
        "Threads that move partitions between data directories.",
    ),
    Option(
        "replica.fetch.backoff.ms",
        INT,
        1000,
        "The pause after a failed fetch from a leader.",
        WORKS,
        minimum=0,
    ),
    Option(
        "replica.fetch.max.bytes",
        INT,
        1048576,
        "Bytes a follower asks for in each partition.",
        WORKS,
        minimum=0,
    ),
    Option("replica.fetch.min.bytes", INT, 1, "Bytes a follower waits for.", WORKS),
    Option(
        "replica.fetch.response.max.bytes",
        INT,
        10485760,
        "Bytes a follower asks for in one fetch.",
        WORKS,
        minimum=0,
    ),
    Option(
        "replica.fetch.wait.max.ms",
        INT,
        500,
        "How long a follower's fetch may wait at the leader.",
        WORKS,
    ),
    Option(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        5000,
        "How often high watermarks are written down.",
    ),
    Option(
        "replica.lag.time.max.ms",
        LONG,
        30000,
        "A follower that has not caught up for this long is out of sync.",
        WORKS,
    ),
    Option(
        "replica.selector.class",
        STRING,
        None,
        "The class that chooses which replica a consumer reads from.",
        WORKS,
    ),
    Option(
        "replica.socket.receive.buffer.bytes",
        INT,
        65536,
        "Receive buffer of a follower's connection to its leader.",
    ),
    Option(
        "replica.socket.timeout.ms",
        INT,
        30000,
        "How long a follower waits for its leader's answer.",
        WORKS,
    ),
    Option(
        "replication.quota.window.num",
        INT,
        11,
        "Samples kept to measure replication quotas.",
        minimum=1,
    ),
    Option(
        "replication.quota.window.size.seconds",
        INT,
        1,
        "The length of one sample for replication quotas.",
        minimum=1,
    ),
    Option(
        "leader.replication.throttled.rate",
        LONG,
        LONG_MAX,
        "Bytes a second that a leader sends to throttled followers.",
        WORKS,
        minimum=0,
        is_dynamic=True,
    ),
    Option(
        "follower.replication.throttled.rate",
        LONG,
        LONG_MAX,
        "Bytes a second that a throttled follower receives.",
        WORKS,
        minimum=0,
        is_dynamic=True,
    ),
    Option(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        LONG_MAX,
        "Bytes a second for moving partitions between data directories.",
        minimum=0,
        is_dynamic=True,
    ),
    Option(
        "alter.log.dirs.replication.quota.window.num",
        INT,
        11,
        "Samples kept to measure moves between data directories.",
        minimum=1,
    ),
    Option(
        "alter.log.dirs.replication.quota.window.size.seconds",
        INT,
        1,
        "The length of one sample for moves between data directories.",
        minimum=1,
    ),
    Option(
        "eligible.leader.replicas.enable",
        BOOLEAN,
        False,
        "Remember replicas that are out of sync but complete (KIP-966).",
    ),
)
