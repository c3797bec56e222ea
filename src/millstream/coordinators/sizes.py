"""How much memory the parts of groups take, about: what clients named, and what follows from it."""

from collections.abc import Iterable, Sequence
from typing import Final

from millstream.coordinators.codecs.changes import (
    SharedTopics,
    StoredConsumerMember,
    StoredShareMember,
)
from millstream.coordinators.codecs.streams_changes import (
    InternalTopic,
    StoredStreamsMember,
    Subtopology,
    Topology,
)

# A text takes so much besides its characters, with its place in a list.
_TEXT_BYTES: Final = 60
# A protocol of a classic member, besides its name and its metadata.
_PROTOCOL_BYTES: Final = 100
# A subtopology or an internal topic, besides what it names.
_OBJECT_BYTES: Final = 150
# A share partition's number.
_NUMBER_BYTES: Final = 8


def texts_bytes(texts: Sequence[str]) -> int:
    return sum(map(len, texts)) + _TEXT_BYTES * len(texts)


def optional_texts_bytes(*texts: str | None) -> int:
    return sum(_TEXT_BYTES + len(text) for text in texts if text)


def protocols_bytes(protocols: Iterable[tuple[str, bytes | memoryview]]) -> int:
    return sum(_PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)


def consumer_member_bytes(stored: StoredConsumerMember) -> int:
    classic = stored.classic
    return (
        subscription_bytes(stored.topics, stored.pattern)
        + optional_texts_bytes(
            stored.instance_id, stored.rack_id, stored.client_id, stored.assignor
        )
        + (0 if classic is None else protocols_bytes(classic.protocols))
    )


def subscription_bytes(topics: Sequence[str] | None, pattern: str | None) -> int:
    return texts_bytes(topics or ()) + optional_texts_bytes(pattern)


def share_member_bytes(stored: StoredShareMember) -> int:
    return texts_bytes(stored.topics) + optional_texts_bytes(stored.rack_id, stored.client_id)


def shared_topics_bytes(topics: SharedTopics) -> int:
    return sum(
        _OBJECT_BYTES + len(topic.name) + _NUMBER_BYTES * len(topic.partitions)
        for each in (topics.initializing, topics.initialized)
        for topic in each.values()
    ) + texts_bytes([*topics.deleting.values()])


def streams_member_bytes(stored: StoredStreamsMember) -> int:
    return optional_texts_bytes(
        stored.instance_id,
        stored.rack_id,
        stored.client_id,
        stored.process_id,
        None if stored.endpoint is None else stored.endpoint.host,
        *(text for tag in stored.client_tags for text in tag),
    )


def topology_bytes(topology: Topology) -> int:
    return sum(map(_subtopology_bytes, topology.subtopologies))


def _subtopology_bytes(each: Subtopology) -> int:
    positions = sum(
        _OBJECT_BYTES
        + _NUMBER_BYTES
        * (
            len(group.source_topics)
            + len(group.source_topic_patterns)
            + len(group.repartition_source_topics)
        )
        for group in each.copartition_groups
    )
    return (
        _OBJECT_BYTES
        + len(each.subtopology_id)
        + texts_bytes(each.source_topics)
        + texts_bytes(each.source_topic_patterns)
        + texts_bytes(each.repartition_sink_topics)
        + sum(map(_internal_topic_bytes, each.changelog_topics))
        + sum(map(_internal_topic_bytes, each.repartition_source_topics))
        + positions
    )


def _internal_topic_bytes(topic: InternalTopic) -> int:
    configs = [text for config in topic.configs for text in config if text]
    return _OBJECT_BYTES + len(topic.name) + texts_bytes(configs)
