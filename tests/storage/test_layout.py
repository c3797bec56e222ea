"""Names on disk, written and read back."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model import TopicPartition, topic_name_problem
from millstream.storage import layout


def test_segment_files_have_twenty_digits() -> None:
    name = layout.offset_file_name(1234, layout.LOG_SUFFIX)
    assert name == "00000000000000001234.log"
    assert layout.parse_segment_file(name) == layout.SegmentFileName(1234, ".log")
    deleted = layout.parse_segment_file(name + ".deleted")
    assert deleted == layout.SegmentFileName(1234, ".log.deleted")


@pytest.mark.parametrize("name", ["1234.log", "leader-epoch-checkpoint", "x" * 20 + ".log", ""])
def test_other_files_are_no_segments(name: str) -> None:
    assert layout.parse_segment_file(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "__cluster_metadata-0",
        "t-",
        "t",
        "t-01",
        "t-x",
        "-0",
        "t-0.0123456789abcdef0123456789abcdef-delete",
        "t-0.0123456789abcdef0123456789abcdef-stray",
        "t-0.0123456789abcdef0123456789abcdef-future",
        "ä-0",
        "..-0x",
    ],
)
def test_other_directories_are_no_partitions(name: str) -> None:
    assert layout.parse_directory(name) is None


topics = st.text("abcXYZ019._-", min_size=1, max_size=249).filter(
    lambda name: topic_name_problem(name) is None
)


@given(topics, st.integers(0, 2**31 - 1), st.uuids())
def test_every_partition_has_a_directory_that_names_it(
    topic: str, number: int, unique: uuid.UUID
) -> None:
    partition = TopicPartition(topic, number)
    name = layout.directory_name(partition)
    assert layout.parse_directory(name) in (partition, None)
    if not name.endswith(("-delete", "-stray", "-future")):
        assert layout.parse_directory(name) == partition or name == "__cluster_metadata-0"
    deleted = layout.deleted_directory_name(partition, unique)
    assert len(deleted) <= 255
    assert layout.is_deleted_directory(deleted)
    assert layout.parse_directory(deleted) is None
    assert layout.parse_directory(layout.stray_directory_name(partition, unique)) is None
