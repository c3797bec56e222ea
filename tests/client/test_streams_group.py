"""What a member reads follows from its tasks and the topology."""

from millstream.client.streams_group import read_partitions, source_topics
from millstream.model import TopicPartition
from millstream.wire.apis.streams_group_describe import (
    DescribedStreamsMember,
    DescribedSubtopology,
    DescribedTaskIds,
    DescribedTasks,
    DescribedTopicInfo,
    DescribedTopology,
    StreamsGroupDescription,
)


def described(topology: DescribedTopology | None) -> StreamsGroupDescription:
    """One member, with task 0 and 1 of subtopology 0."""
    tasks = DescribedTasks(
        active_tasks=[DescribedTaskIds(subtopology_id="0", partitions=[0, 1])],
        standby_tasks=[],
        warmup_tasks=[],
    )
    member = DescribedStreamsMember(
        member_id="m",
        member_epoch=1,
        client_id="c",
        client_host="h",
        topology_epoch=0,
        process_id="p",
        client_tags=[],
        task_offsets=[],
        task_end_offsets=[],
        assignment=tasks,
        target_assignment=tasks,
    )
    return StreamsGroupDescription(
        error_code=0,
        group_id="g",
        group_state="Stable",
        group_epoch=1,
        assignment_epoch=1,
        topology=topology,
        members=[member],
    )


def test_a_task_reads_its_partition_of_every_source() -> None:
    inner = DescribedTopicInfo(name="r", partitions=2, replication_factor=0, topic_configs=[])
    part = DescribedSubtopology(
        subtopology_id="0",
        source_topics=["a", "small", "gone"],
        repartition_sink_topics=["out"],
        state_changelog_topics=[],
        repartition_source_topics=[inner],
    )
    group = described(DescribedTopology(epoch=0, subtopologies=[part]))
    assert source_topics(group) == {"a", "small", "gone", "r"}
    read = read_partitions(group, {"a": 2, "small": 1, "r": 2})
    assert read == {
        "m": tuple(
            TopicPartition(*where)
            for where in (("a", 0), ("a", 1), ("small", 0), ("r", 0), ("r", 1))
        )
    }


def test_without_a_topology_nothing_is_read() -> None:
    assert source_topics(described(None)) == set()
    assert read_partitions(described(None), {"a": 2}) == {"m": ()}
