"""Who may commit in a streams group."""

from millstream.errors import KafkaCode
from millstream.wire.offset_commit import OffsetToCommit
from tests.coordinators.streams.streams_world import StreamsWorld
from tests.coordinators.world import refused


def test_a_member_commits_in_its_epoch() -> None:
    world = StreamsWorld()
    reply = world.report("a", 0)
    assert world.commit(5, member_id="a", generation=reply.epoch) is KafkaCode.NONE
    assert world.committed() == 5


def test_strangers_and_later_epochs_are_refused() -> None:
    world = StreamsWorld()
    reply = world.report("a", 0)
    code = refused(lambda: world.commit(5, member_id="b", generation=reply.epoch))
    assert code is KafkaCode.UNKNOWN_MEMBER_ID
    code = refused(lambda: world.commit(5, member_id="a", generation=reply.epoch + 1))
    assert code is KafkaCode.STALE_MEMBER_EPOCH
    assert refused(lambda: world.commit(5)) is KafkaCode.UNKNOWN_MEMBER_ID
    old = {"member_id": "a", "generation": reply.epoch, "knows_member_epochs": False}
    assert refused(lambda: world.commit(5, **old)) is KafkaCode.UNSUPPORTED_VERSION


def test_anybody_commits_in_an_empty_group() -> None:
    world = StreamsWorld()
    world.report("a", 0)
    world.report("a", -1)
    assert world.commit(5) is KafkaCode.NONE


def test_an_older_epoch_counts_for_tasks_that_the_member_has_had_since_then() -> None:
    world = StreamsWorld()
    first = world.report("a", 0)
    world.settle(first, world.report("b", 0))
    kept = world.streams().members["a"].current
    [partition] = kept.assigned.active["0"]
    assert kept.epoch > first.epoch
    of_a = {"member_id": "a", "generation": first.epoch}
    assert world.commit(5, partition=partition, **of_a) is KafkaCode.NONE
    other = 1 - partition
    stale = KafkaCode.STALE_MEMBER_EPOCH
    assert refused(lambda: world.commit(5, partition=other, **of_a)) is stale
    assert refused(lambda: world.commit(5, topic="payments", **of_a)) is stale


def test_a_topic_that_does_not_exist_spoils_nothing() -> None:
    world = StreamsWorld()
    first = world.report("a", 0)
    world.settle(first, world.report("b", 0))
    unknown = OffsetToCommit(0, 5, -1, "", KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
    topics = [("gone", [unknown])]
    # Its own code is the answer, whatever the epoch.
    code = world.commit(5, member_id="a", generation=first.epoch, topics=topics)
    assert code is KafkaCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_task_that_came_later_needs_its_epoch() -> None:
    world = StreamsWorld()
    last = world.settle(world.report("a", 0), world.report("b", 0))
    before = last["a"].epoch
    had = world.streams().members["a"].current.assigned.active["0"]
    [other] = {0, 1} - set(had)
    world.report("b", -1)
    world.report("a", before)
    code = refused(lambda: world.commit(5, partition=other, member_id="a", generation=before))
    assert code is KafkaCode.STALE_MEMBER_EPOCH


def test_a_task_that_is_being_revoked_may_still_be_committed() -> None:
    world = StreamsWorld()
    first = world.report("a", 0)
    world.confirm(first)
    world.report("b", 0)
    world.report("a", first.epoch)
    revoking = world.streams().members["a"].current.revoking
    assert revoking
    for partition in (0, 1):
        code = world.commit(5, partition=partition, member_id="a", generation=first.epoch)
        assert code is KafkaCode.NONE
