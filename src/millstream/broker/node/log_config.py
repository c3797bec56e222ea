"""Derives the settings of a log from the options of its topic."""

from collections.abc import Mapping
from typing import Final

from millstream.config import BrokerConfig, topic_config
from millstream.model import Codec, TimestampType
from millstream.storage.values import LogConfig

_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def log_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """The settings of a log whose topic has these overrides."""
    topic = topic_config(broker, overrides)
    policy = topic.list("cleanup.policy")
    is_append_time = topic.string("message.timestamp.type") == "LogAppendTime"
    lag_max_ms = topic.int("max.compaction.lag.ms")
    segment_ms = topic.int("segment.ms")
    if "compact" in policy:
        # The active segment is never compacted, so records may not stay in it for longer.
        segment_ms = min(segment_ms, max(lag_max_ms, 1))
    return LogConfig(
        segment_bytes=topic.int("segment.bytes"),
        segment_ms=segment_ms,
        segment_jitter_ms=topic.int("segment.jitter.ms"),
        segment_index_bytes=topic.int("segment.index.bytes"),
        index_interval_bytes=topic.int("index.interval.bytes"),
        retention_ms=topic.int("retention.ms"),
        retention_bytes=topic.int("retention.bytes"),
        max_message_bytes=topic.int("max.message.bytes"),
        timestamp_type=(
            TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME
        ),
        timestamp_before_max_ms=topic.int("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=topic.int("message.timestamp.after.max.ms"),
        # "producer" keeps the producer's choice.
        compression_type=_CODECS.get(topic.string("compression.type")),
        is_compacted="compact" in policy,
        is_deleted="delete" in policy,
        cleanable_ratio_min=topic.float("min.cleanable.dirty.ratio"),
        compaction_lag_min_ms=topic.int("min.compaction.lag.ms"),
        compaction_lag_max_ms=lag_max_ms,
        delete_retention_ms=topic.int("delete.retention.ms"),
        file_delete_delay_ms=topic.int("file.delete.delay.ms"),
        flush_messages=topic.int("flush.messages"),
        flush_ms=topic.int("flush.ms"),
        producer_expiration_ms=broker.int("producer.id.expiration.ms"),
        takes_dead_letters=topic.boolean("errors.deadletterqueue.group.enable"),
        honours_delivery_times=topic.boolean("millstream.delivery.times.enable"),
    )
