import asyncio
import itertools
import shutil
import uuid
from pathlib import Path

import pytest

from millstream.cluster.adoption import (
    KEEP_EVERYTHING,
    UNKNOWN_PRODUCER_ID_START,
    adopt,
    needs_adoption,
    plan_adoption,
)
from millstream.cluster.kraft import METADATA_DIRECTORY, read_kraft_metadata
from millstream.cluster.metadata import ClusterMetadata, start_alone
from millstream.cluster.stores.embedded import FILE_NAME
from millstream.cluster.stores.memory import MemoryTree
from millstream.cluster.znodes import encode_uuid
from millstream.config import load_config
from millstream.errors import StartError

# Written by Apache Kafka 4.3.0, without the records of its topics.
KAFKA_DIRECTORY = Path(__file__).parent / "kafka_directory"


@pytest.fixture
def directory(tmp_path) -> Path:
    copy = tmp_path / "data"
    shutil.copytree(KAFKA_DIRECTORY, copy)
    return copy


def new_ids():
    return (uuid.UUID(int=number) for number in itertools.count(1))


def adopted_controller(plan) -> ClusterMetadata:
    """A node after its first start on the adopted directory."""

    async def started() -> ClusterMetadata:
        store = MemoryTree().open_session()
        await adopt(plan, store, broker_id=1, new_topic_ids=new_ids())
        alone = await start_alone(store, broker_id=1, random_bytes=bytes)
        return ClusterMetadata(alone, load_config(), broker_id=1, random_bytes=bytes)

    return asyncio.run(started())


def everything_in(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def partition_directory(directory: Path, name: str, topic_id: int | None, epochs: str = "") -> None:
    folder = directory / name
    folder.mkdir(parents=True)
    if topic_id is not None:
        text = encode_uuid(uuid.UUID(int=topic_id))
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {text}")
    lines = epochs.split("|") if epochs else []
    (folder / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def test_only_somebody_elses_data_needs_adoption(tmp_path, directory):
    assert needs_adoption(directory)
    assert not needs_adoption(tmp_path / "missing")
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "lost+found").mkdir()
    assert not needs_adoption(empty)
    (empty / "orders-0").mkdir()
    assert needs_adoption(empty)
    (directory / FILE_NAME).touch()
    assert not needs_adoption(directory)


def test_a_plan_only_reads(directory):
    before = everything_in(directory)
    plan_adoption(directory, load_config())
    assert everything_in(directory) == before


def test_topics_ids_options_and_producer_ids_are_taken_over(directory):
    plan = plan_adoption(directory, load_config())
    assert plan.problems == []
    controller = adopted_controller(plan)
    image = controller.image
    assert image.cluster_id == "q1Sh-9_ISia_zwGINzRvyQ"
    assert (plan.metadata.node_id, plan.metadata.directory_id) == (1, "QKV10BQNAKyVmbJNsLjHRQ")
    assert len(image.topics) == 10
    forever = image.topics["forever"]
    text = (directory / "forever-0" / "partition.metadata").read_text()
    assert encode_uuid(forever.topic_id) in text
    assert forever.overrides == {"retention.ms": "-1", "max.message.bytes": "3000000"}
    assert image.topics["compacted"].overrides == {"cleanup.policy": "compact"}
    assert len(image.topics["compacted"].partitions) == 4
    assert controller.effective_config.int("log.retention.ms") == 99999999
    assert asyncio.run(controller.allocate_producer_ids()) == range(1000, 2000)


def test_an_option_for_all_nodes_is_not_taken_over_from_one_node(directory, monkeypatch):
    def with_option(path):
        found = read_kraft_metadata(path)
        found.broker_configs[1] = {"min.insync.replicas": "2"}
        return found

    monkeypatch.setattr("millstream.cluster.adoption.read_kraft_metadata", with_option)
    plan = plan_adoption(directory, load_config())
    assert 1 not in plan.metadata.broker_configs
    assert any("min.insync.replicas has one value for the whole" in line for line in plan.lines)


def test_the_first_start_leads_with_a_newer_epoch_than_kafka_did(directory):
    epochs = {
        topic.name: topic.leader_epochs
        for topic in plan_adoption(directory, load_config()).metadata.topics
    }
    # A log may know a newer epoch than metadata that lost its end.
    (directory / "forever-1" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n9 50\n")
    image = adopted_controller(plan_adoption(directory, load_config())).image
    for name, kafka_epochs in epochs.items():
        ours = [partition.leader_epoch for partition in image.topics[name].partitions]
        if name == "forever":
            assert ours == [kafka_epochs[0] + 1, 10, kafka_epochs[2] + 1]
        else:
            assert ours == [epoch + 1 for epoch in kafka_epochs]


def test_the_plan_says_how_long_each_topic_is_kept(directory):
    lines = plan_adoption(directory, load_config()).lines
    assert "  forever: 3 partitions, delete, kept for ever" in lines
    assert "  compacted: 4 partitions, compact, nothing is deleted by age" in lines
    # The node's retention, which Kafka's metadata itself changed.
    assert "  m0: 2 partitions, delete, kept for 1.16 days (this node's)" in lines
    assert any("server.properties" in line for line in lines)
    assert any("no.such" in line for line in lines)
    assert all("\n" not in line for line in lines)


def test_without_metadata_everything_is_kept_until_the_user_says_otherwise(directory):
    shutil.rmtree(directory / METADATA_DIRECTORY)
    plan = plan_adoption(directory, load_config())
    assert any("nothing of these topics is deleted" in line for line in plan.lines)
    controller = adopted_controller(plan)
    assert len(controller.image.topics) == 10
    for topic in controller.image.topics.values():
        assert topic.overrides == KEEP_EVERYTHING
        text = (directory / f"{topic.name}-0" / "partition.metadata").read_text()
        assert encode_uuid(topic.topic_id) in text
    assert len(controller.image.topics["compacted"].partitions) == 4
    assert asyncio.run(controller.allocate_producer_ids()).start == UNKNOWN_PRODUCER_ID_START


def test_partitions_from_before_topic_ids_get_one(tmp_path):
    partition_directory(tmp_path, "old-0", None, "3 0|5 100")
    partition_directory(tmp_path, "old-1", None)
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=4\ncluster.id=abc\n")
    plan = plan_adoption(tmp_path, load_config())
    assert (plan.metadata.node_id, plan.metadata.cluster_id) == (4, "abc")
    topic = adopted_controller(plan).image.topics["old"]
    assert topic.topic_id == uuid.UUID(int=1)
    assert [partition.leader_epoch for partition in topic.partitions] == [6, 0]


def test_directories_that_are_no_partitions_are_left_alone(tmp_path):
    partition_directory(tmp_path, "a-b-0", 1)
    for name in ("a-b-01", "a b-0", "orders", "gone-0.0123456789abcdef0123456789abcdef-delete"):
        (tmp_path / name).mkdir()
    (tmp_path / "file-0").touch()
    plan = plan_adoption(tmp_path, load_config())
    assert [topic.name for topic in plan.metadata.topics] == ["a-b"]


def test_a_leftover_of_a_deleted_topic_is_told_and_left_alone(directory):
    partition_directory(directory, "leftover-0", 99)
    plan = plan_adoption(directory, load_config())
    assert plan.problems == []
    assert "leftover-0 is of no topic that Kafka knows: left alone" in plan.lines


def test_an_empty_partition_that_kafka_never_wrote_is_no_problem(directory):
    shutil.rmtree(directory / "m3-1")
    assert plan_adoption(directory, load_config()).problems == []


def refused(directory: Path, message: str) -> None:
    plan = plan_adoption(directory, load_config())
    assert any(message in problem for problem in plan.problems), plan.problems
    with pytest.raises(StartError):
        adopted_controller(plan)


def test_a_part_of_a_larger_cluster_is_refused(tmp_path, directory):
    (directory / "meta.properties").write_text("version=1\nnode.id=2\ncluster.id=abc\n")
    shutil.rmtree(directory / "m3-1")
    refused(directory, "m3-1 is not in this directory but on nodes 1")
    partition_directory(tmp_path / "other", "orders-0", 1)
    partition_directory(tmp_path / "other", "orders-2", 1)
    refused(tmp_path / "other", "orders-1 is missing")


def test_two_topics_under_one_name_are_refused(tmp_path, directory):
    text = encode_uuid(uuid.UUID(int=5))
    (directory / "m3-1" / "partition.metadata").write_text(f"version: 0\ntopic_id: {text}")
    refused(directory, "m3-1 holds data of an older topic")
    partition_directory(tmp_path / "other", "orders-0", 1)
    partition_directory(tmp_path / "other", "orders-1", 2)
    refused(tmp_path / "other", "different topic ids")


def test_a_damaged_file_is_one_clear_line(directory):
    (directory / "m3-1" / "partition.metadata").write_text("nonsense")
    with pytest.raises(StartError, match=r"m3-1.*partition\.metadata"):
        plan_adoption(directory, load_config())


def test_a_damaged_epoch_file_is_passed_over(directory):
    (directory / "m3-1" / "leader-epoch-checkpoint").write_text("0\n1\nx y\n")
    assert plan_adoption(directory, load_config()).problems == []
