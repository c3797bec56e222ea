"""Share groups on a node, request by request: fetches that acquire, wait and give back.

Covers broker/handlers/share_fetch.py, broker/handlers/share_acknowledge.py,
broker/handlers/share_group_heartbeat.py, broker/coordination/share_partitions.py,
broker/coordination/share_state.py, broker/coordination/share_coordinator.py,
broker/coordination/sharing.py, broker/requests/share_acknowledgements.py,
broker/requests/share_reading.py.
"""

import asyncio
import threading
import time
import uuid
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.broker.coordination.share_state import ShareStateStore
from millstream.broker.requests import share_reading
from millstream.errors import KafkaCode, NoSpace
from millstream.records.delivery_times import NOT_BEFORE
from millstream.storage.log import Log
from millstream.testing import Broker
from millstream.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from millstream.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.support.raw_client import RawClient
from tests.support.share_member import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    Fetched,
    ShareMember,
    create_topic,
    produce,
    set_group_options,
)
from tests.support.waiting import wait_until

LOCK_MS = 30_000
LONG_MS = 20_000
# Partitions that are not looked at in one go.
MANY = 300


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


class Queue:
    """A new topic, and a group that starts at its beginning."""

    def __init__(self, bootstrap: str, partitions: int = 1, **options: str) -> None:
        self.bootstrap = bootstrap
        self.name = f"q-{uuid.uuid4().hex[:8]}"
        self.partitions = partitions
        self.client = RawClient(bootstrap)
        create_topic(self.client, self.name, partitions)
        options = {"share_auto_offset_reset": "earliest", **options}
        set_group_options(self.client, self.name, **options)
        self.members: list[ShareMember] = []

    def produce(self, *sizes: int, partition: int = 0) -> None:
        produce(self.client, self.name, *sizes, partition=partition)

    def member(self) -> ShareMember:
        """It is assigned the topic, and has a session."""
        member = ShareMember(self.bootstrap, self.name, self.name, partitions=self.partitions)
        self.members.append(member)
        member.join()
        member.fetch(records=0)
        return member

    def close(self) -> None:
        for member in self.members:
            member.close()
        self.client.sock.close()


@pytest.fixture
def queue(broker: Broker) -> Iterator[Queue]:
    made = Queue(broker.bootstrap)
    yield made
    made.close()


def delete_records(queue: Queue, *, before: int) -> None:
    """Of partition 0."""
    row = DeleteRecordsPartition(partition_index=0, offset=before)
    topic = DeleteRecordsTopic(name=queue.name, partitions=[row])
    queue.client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=20_000), 2)


def later(call: "object", results: list[Fetched]) -> threading.Thread:
    thread = threading.Thread(target=lambda: results.append(call()))  # type: ignore[operator]
    thread.start()
    return thread


def test_a_new_group_gets_its_partitions_with_the_first_heartbeat(queue: Queue) -> None:
    with ShareMember(queue.bootstrap, queue.name, queue.name) as member:
        member.join()
        answer = member.heartbeat([queue.name])
        assert [row.partitions for row in answer.assignment.topic_partitions] == [[0]]


def test_each_record_goes_to_one_member(queue: Queue) -> None:
    queue.produce(10)
    one, other = queue.member(), queue.member()
    assert one.fetch(wait_ms=LONG_MS).ranges == [(0, 9, 1)]
    assert other.fetch().ranges == []
    assert other.acknowledge((0, 9, [ACCEPT])) is KafkaCode.INVALID_RECORD_STATE
    assert one.acknowledge((0, 9, [ACCEPT])) is KafkaCode.NONE
    assert one.acknowledge((0, 9, [ACCEPT])) is KafkaCode.NONE, "it is past that"
    queue.produce(1)
    assert other.fetch(wait_ms=LONG_MS).ranges == [(10, 10, 1)]


def test_the_records_come_with_the_batches_that_hold_them(queue: Queue) -> None:
    queue.produce(5, 5, 5)
    member = queue.member()
    first = member.fetch(wait_ms=LONG_MS, records=5)
    second = member.fetch(records=5)
    assert (first.ranges, second.ranges) == ([(0, 4, 1)], [(5, 9, 1)])
    assert int.from_bytes(second.data[0][:8], "big") == 5
    assert len(first.data[0]) == len(second.data[0])


def test_a_fetch_waits_for_records(queue: Queue) -> None:
    member = queue.member()
    found: list[Fetched] = []
    thread = later(lambda: member.fetch(wait_ms=LONG_MS), found)
    queue.produce(3)
    thread.join(LONG_MS / 1000)
    assert found[0].ranges == [(0, 2, 1)]


def test_a_fetch_that_acknowledges_very_much_does_not_wait(queue: Queue) -> None:
    """Two large requests at a time are under way: the others would wait as long as it does."""
    queue.produce(1_000)
    member = queue.member()
    assert member.fetch(wait_ms=LONG_MS, records=1_000).ranges == [(0, 999, 1)]
    each = [(offset, offset, [ACCEPT]) for offset in range(1_000)]
    began = time.monotonic()
    said = member.fetch(wait_ms=LONG_MS, acknowledge=each)
    assert (said.code, said.acknowledged) == (KafkaCode.NONE, {0: KafkaCode.NONE})
    assert time.monotonic() - began < LONG_MS / 1000


def test_a_fetch_waits_for_as_many_bytes_as_it_wants(queue: Queue) -> None:
    member = queue.member()
    queue.produce(1)
    assert member.fetch(wait_ms=300, min_bytes=10_000).ranges == [(0, 0, 1)]
    found: list[Fetched] = []
    thread = later(lambda: member.fetch(wait_ms=LONG_MS, min_bytes=300), found)
    queue.produce(1, 1, 1, 1, 1)
    thread.join(LONG_MS / 1000)
    assert found[0].ranges[0][0] == 1


def test_a_fetch_waits_for_records_that_others_release(queue: Queue) -> None:
    queue.produce(4)
    one, other = queue.member(), queue.member()
    one.fetch(wait_ms=LONG_MS)
    found: list[Fetched] = []
    thread = later(lambda: other.fetch(wait_ms=LONG_MS), found)
    assert one.acknowledge((1, 2, [RELEASE])) is KafkaCode.NONE
    thread.join(LONG_MS / 1000)
    assert found[0].ranges == [(1, 2, 2)]


def test_a_lock_that_is_over_wakes_those_who_wait(broker: Broker, queue: Queue) -> None:
    queue.produce(4)
    one, other = queue.member(), queue.member()
    one.fetch(wait_ms=LONG_MS)
    found: list[Fetched] = []
    thread = later(lambda: other.fetch(wait_ms=10 * LOCK_MS), found)
    broker.clock.advance(milliseconds=LOCK_MS)
    thread.join(LONG_MS / 1000)
    assert found[0].ranges == [(0, 3, 2)]
    assert one.acknowledge((0, 3, [ACCEPT])) is KafkaCode.INVALID_RECORD_STATE


def test_a_lock_is_over_before_a_delayed_record_is_due(broker: Broker, queue: Queue) -> None:
    due_ms = broker.clock.now_ms() + 100 * LOCK_MS
    broker.topic(queue.name).produce([("k", "late", {NOT_BEFORE: str(due_ms)})])
    queue.produce(1)
    one, other = queue.member(), queue.member()
    assert one.fetch(wait_ms=LONG_MS).ranges == [(1, 1, 1)]
    broker.clock.advance(milliseconds=LOCK_MS)
    assert other.fetch(wait_ms=LONG_MS).ranges == [(1, 1, 2)]


def test_a_shorter_lock_is_over_before_the_longer_ones_from_before(
    broker: Broker, queue: Queue
) -> None:
    set_group_options(queue.client, queue.name, share_record_lock_duration_ms=str(2 * LOCK_MS))
    queue.produce(1, 1)
    one, other = queue.member(), queue.member()
    assert one.fetch(wait_ms=LONG_MS, records=1).ranges == [(0, 0, 1)]
    set_group_options(queue.client, queue.name, share_record_lock_duration_ms=str(LOCK_MS))
    assert one.fetch(wait_ms=LONG_MS, records=1).ranges == [(1, 1, 1)]
    broker.clock.advance(milliseconds=LOCK_MS)
    assert other.fetch(wait_ms=LONG_MS).ranges == [(1, 1, 2)]


def test_a_lock_is_renewed(broker: Broker, queue: Queue) -> None:
    queue.produce(4)
    one, other = queue.member(), queue.member()
    one.fetch(wait_ms=LONG_MS)
    broker.clock.advance(milliseconds=LOCK_MS - 5_000)
    assert one.acknowledge((0, 1, [RENEW])) is KafkaCode.INVALID_REQUEST
    assert one.acknowledge((0, 1, [RENEW]), renews=True) is KafkaCode.NONE
    said = one.fetch(renews=True, acknowledge=[(2, 2, [RENEW])])
    assert (said.code, said.acknowledged) == (KafkaCode.NONE, {0: KafkaCode.NONE})
    broker.clock.advance(milliseconds=10_000)
    assert other.fetch(wait_ms=LONG_MS).ranges == [(3, 3, 2)]


def test_acknowledgements_may_come_with_a_fetch(queue: Queue) -> None:
    queue.produce(2, 2)
    member = queue.member()
    member.fetch(wait_ms=LONG_MS, records=2)
    found = member.fetch(records=2, acknowledge=[(0, 1, [ACCEPT, REJECT])])
    assert (found.ranges, found.acknowledged) == ([(2, 3, 1)], {0: KafkaCode.NONE})
    wrong = member.fetch(acknowledge=[(7, 9, [ACCEPT])])
    assert wrong.acknowledged == {0: KafkaCode.INVALID_REQUEST}


def test_a_fetch_acknowledges_nothing_that_it_acquires_itself(queue: Queue) -> None:
    queue.produce(2, 2)
    member = queue.member()
    member.fetch(wait_ms=LONG_MS, records=2)
    found = member.fetch(records=2, acknowledge=[(2, 3, [ACCEPT])])
    assert (found.ranges, found.acknowledged) == ([(2, 3, 1)], {0: KafkaCode.INVALID_REQUEST})


@pytest.fixture(params=["stored at once", "stored later"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored takes no time, or longer than a fetch that finds something."""
    write = ShareStateStore.write

    async def write_later(*arguments: Any) -> object:
        for _ in range(50):
            await asyncio.sleep(0)
        answer = write(*arguments)
        return await answer if isinstance(answer, Awaitable) else answer

    if request.param == "stored later":
        monkeypatch.setattr(ShareStateStore, "write", write_later)


@pytest.mark.usefixtures("store")
def test_what_a_fetch_releases_is_acquired_when_that_is_stored(queue: Queue) -> None:
    queue.produce(2)
    member = queue.member()
    member.fetch(wait_ms=LONG_MS)
    found = member.fetch(wait_ms=LONG_MS, acknowledge=[(0, 1, [RELEASE])])
    assert (found.ranges, found.acknowledged) == ([(0, 1, 2)], {0: KafkaCode.NONE})


@pytest.mark.usefixtures("store")
def test_what_is_acknowledged_counts_if_the_fetch_beside_it_fails(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.produce(2, 2)
    member = queue.member()
    assert member.fetch(wait_ms=LONG_MS, records=2).ranges == [(0, 1, 1)]

    def read_from_a_broken_disk(*arguments: Any, **options: Any) -> Any:
        raise OSError("the disk is broken")

    with monkeypatch.context() as broken, pytest.raises(ConnectionError):
        broken.setattr(share_reading, "read", read_from_a_broken_disk)
        member.fetch(wait_ms=LONG_MS, acknowledge=[(0, 1, [ACCEPT])])
    assert queue.member().fetch(wait_ms=LONG_MS).ranges == [(2, 3, 1)]


@pytest.mark.usefixtures("store")
def test_a_fetch_that_finds_other_records_does_not_wait_for_what_it_releases(queue: Queue) -> None:
    queue.produce(2, 2)
    member = queue.member()
    member.fetch(wait_ms=LONG_MS, records=2)
    found = member.fetch(wait_ms=LONG_MS, acknowledge=[(0, 1, [RELEASE])])
    assert (found.ranges, found.acknowledged) == ([(2, 3, 1)], {0: KafkaCode.NONE})


@pytest.mark.parametrize(
    "said",
    [
        [(3, 2, [ACCEPT])],
        [(0, 2, [])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(2, 2, [ACCEPT]), (0, 0, [ACCEPT])],
    ],
)
def test_nonsense_is_refused(queue: Queue, said: list[tuple[int, int, list[int]]]) -> None:
    queue.produce(4)
    member = queue.member()
    member.fetch(wait_ms=LONG_MS)
    assert member.acknowledge(*said) is KafkaCode.INVALID_REQUEST
    assert member.acknowledge((0, 3, [ACCEPT])) is KafkaCode.NONE


def test_a_connection_that_ends_gives_back_its_records(queue: Queue) -> None:
    queue.produce(4)
    one, other = queue.member(), queue.member()
    one.fetch(wait_ms=LONG_MS)
    one.client.sock.close()
    assert other.fetch(wait_ms=LONG_MS).ranges == [(0, 3, 2)]


def test_a_session_that_is_closed_gives_back_its_records(queue: Queue) -> None:
    queue.produce(4)
    one, other = queue.member(), queue.member()
    one.fetch(wait_ms=LONG_MS)
    assert one.close_session() is KafkaCode.NONE
    assert other.fetch(wait_ms=LONG_MS).ranges == [(0, 3, 2)]


def test_requests_of_another_session_are_refused(queue: Queue) -> None:
    member = queue.member()
    assert member.fetch(epoch=7).code is KafkaCode.INVALID_SHARE_SESSION_EPOCH
    zero = member.acknowledge((0, 0, [ACCEPT]), epoch=0)
    assert zero is KafkaCode.INVALID_SHARE_SESSION_EPOCH
    member.close_session()
    assert member.fetch(epoch=7).code is KafkaCode.SHARE_SESSION_NOT_FOUND
    assert member.close_session() is KafkaCode.SHARE_SESSION_NOT_FOUND
    first = member.fetch(acknowledge=[(0, 0, [ACCEPT])])
    assert first.code is KafkaCode.INVALID_REQUEST


def test_the_sessions_of_a_node_are_limited() -> None:
    with Broker(settings={"group.share.max.share.sessions": "1"}) as broker:
        queue = Queue(broker.bootstrap)
        one = queue.member()
        other = ShareMember(broker.bootstrap, queue.name, queue.name)
        assert other.fetch(wait_ms=10).code is KafkaCode.SHARE_SESSION_LIMIT_REACHED
        # A large request is refused at once: few of them are under way at a time.
        with ShareMember(broker.bootstrap, queue.name, queue.name, partitions=2_000) as large:
            began = time.monotonic()
            refused = large.fetch(wait_ms=LONG_MS)
            assert refused.code is KafkaCode.SHARE_SESSION_LIMIT_REACHED
            assert time.monotonic() - began < LONG_MS / 1000
        one.close_session()
        assert other.fetch().code is KafkaCode.NONE
        other.close()
        queue.close()


def test_several_partitions_fill_one_response(broker: Broker) -> None:
    queue = Queue(broker.bootstrap, partitions=3)
    for partition in range(3):
        queue.produce(4, partition=partition)
    member = queue.member()
    got: dict[int, list[tuple[int, int, int]]] = {}
    while len(got) < 3:
        got.update(member.fetch(wait_ms=LONG_MS, records=4).acquired)
    assert got == {0: [(0, 3, 1)], 1: [(0, 3, 1)], 2: [(0, 3, 1)]}
    queue.close()


def test_a_first_fetch_gets_the_records_of_one_partition(broker: Broker) -> None:
    """As in Kafka, which answers when the state of the first partition is read. Programs that
    expect a partition at a time, such as librdkafka's tests, get it; later fetches get more."""
    queue = Queue(broker.bootstrap, partitions=2)
    for partition in range(2):
        queue.produce(4, partition=partition)
    member = ShareMember(queue.bootstrap, queue.name, queue.name, partitions=2)
    queue.members.append(member)
    member.join()
    fetched = [member.fetch(wait_ms=LONG_MS).acquired for _ in range(2)]
    assert fetched == [{0: [(0, 3, 1)]}, {1: [(0, 3, 1)]}]
    for partition in range(2):
        queue.produce(4, partition=partition)
    assert member.fetch(wait_ms=LONG_MS).acquired == {0: [(4, 7, 1)], 1: [(4, 7, 1)]}
    queue.close()


def test_a_new_group_starts_at_the_end_unless_told_otherwise(broker: Broker) -> None:
    queue = Queue(broker.bootstrap, share_auto_offset_reset="latest")
    queue.produce(5)
    member = queue.member()
    member.fetch(wait_ms=200)
    queue.produce(2)
    assert member.fetch(wait_ms=LONG_MS).ranges == [(5, 6, 1)]
    queue.close()


def test_a_group_may_start_a_while_ago(broker: Broker) -> None:
    queue = Queue(broker.bootstrap, share_auto_offset_reset="by_duration:PT1H")
    queue.produce(5)
    assert queue.member().fetch(wait_ms=LONG_MS).ranges == [(0, 4, 1)]
    queue.close()


def test_records_that_were_deleted_are_passed_over(queue: Queue) -> None:
    queue.produce(5, 5)
    member = queue.member()
    member.fetch(wait_ms=LONG_MS, records=5)
    delete_records(queue, before=7)
    assert member.fetch(wait_ms=LONG_MS).ranges == [(7, 9, 1)]
    assert member.acknowledge((0, 4, [ACCEPT])) is KafkaCode.NONE


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_aborted_transactions_are_left_out_where_a_group_wants_that(
    broker: Broker, level: str
) -> None:
    queue = Queue(broker.bootstrap, share_isolation_level=level)
    producer = Producer({**broker.client_config(), "transactional.id": queue.name})
    producer.init_transactions(20)
    for is_commit in (False, True):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(queue.name, str(number), partition=0)
        producer.flush(20)
        if is_commit:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
    member = queue.member()
    offsets: set[int] = set()
    # 0 to 2 are aborted, 3 and 7 are markers, which clients pass over.
    while 7 not in offsets:
        for first, last, _ in member.fetch(wait_ms=LONG_MS).ranges:
            offsets.update(range(first, last + 1))
    assert offsets == (set(range(3, 8)) if level == "read_committed" else set(range(8)))
    producer.begin_transaction()
    producer.produce(queue.name, "open", partition=0)
    producer.flush(20)
    still_open = member.fetch(wait_ms=200).ranges
    assert still_open == ([] if level == "read_committed" else [(8, 8, 1)])
    producer.abort_transaction(20)
    queue.close()


@pytest.mark.parametrize("changes", [{"batch_size": 0}, {"batch_size": -5}, {"records": -1}])
def test_odd_limits_harm_nobody(queue: Queue, changes: dict[str, int]) -> None:
    queue.produce(3, 3)
    member = queue.member()
    assert member.fetch(wait_ms=200, **changes).code is KafkaCode.NONE
    other = queue.member()
    member.close_session()
    found = other.fetch(wait_ms=LONG_MS).ranges
    assert [n for first, last, _ in found for n in range(first, last + 1)] == list(range(6))


def test_a_group_that_never_joined_gets_nothing(queue: Queue) -> None:
    queue.produce(3)
    with ShareMember(queue.bootstrap, f"{queue.name}-other", queue.name) as stranger:
        assert stranger.fetch(wait_ms=LONG_MS).codes == {0: KafkaCode.UNKNOWN_SERVER_ERROR}
        stranger.fetch(records=0)
        said = stranger.acknowledge((0, 0, [ACCEPT]))
        assert said is KafkaCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_that_does_not_exist_is_told_of_once(queue: Queue) -> None:
    queue.produce(1)
    with ShareMember(queue.bootstrap, queue.name, queue.name, partitions=MANY) as member:
        member.join()
        missing = dict.fromkeys(range(1, MANY), KafkaCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert member.fetch(wait_ms=LONG_MS).codes == missing
        found = member.fetch(wait_ms=LONG_MS)
        assert (found.ranges, found.codes) == ([(0, 0, 1)], {0: KafkaCode.NONE})
        assert member.fetch(wait_ms=100).codes == {}
        topic = CreatePartitionsTopic(name=queue.name, count=2, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=5_000, validate_only=False)
        queue.client.ask(request, 1)
        queue.produce(3, partition=1)

        def is_acquired() -> bool:
            member.heartbeat([queue.name])
            return member.fetch(wait_ms=100).acquired == {1: [(0, 2, 1)]}

        wait_until(is_acquired, "the records of the new partition")


def test_many_partitions_are_looked_at_in_turns(broker: Broker) -> None:
    queue = Queue(broker.bootstrap, partitions=MANY)
    with ShareMember(queue.bootstrap, queue.name, queue.name, partitions=MANY) as stranger:
        codes = stranger.fetch(wait_ms=LONG_MS).codes
        while len(codes) < MANY:
            codes |= stranger.fetch(wait_ms=LONG_MS).codes
        assert set(codes.values()) == {KafkaCode.UNKNOWN_SERVER_ERROR}, "nobody has joined"
    member = queue.member()
    found: list[Fetched] = []
    for partition in (MANY - 1, 1):
        thread = later(lambda: member.fetch(wait_ms=LONG_MS), found)
        queue.produce(4, partition=partition)
        thread.join(2 * LONG_MS / 1000)
        assert found.pop().acquired == {partition: [(0, 3, 1)]}
    for partition in range(MANY):
        queue.produce(1, partition=partition)
    acquired: set[int] = set()
    while len(acquired) < MANY:
        acquired |= set(member.fetch(wait_ms=LONG_MS).acquired)
    other = queue.member()
    member.client.sock.close()
    while len(acquired):
        acquired -= set(other.fetch(wait_ms=LONG_MS).acquired)
    queue.close()


def state_start(broker: Broker) -> int:
    reader = Consumer({**broker.client_config(), "group.id": "state"})
    low, _ = reader.get_watermark_offsets(TopicPartition("__share_group_state", 0), timeout=20)
    reader.close()
    return int(low)


def test_old_records_of_the_state_are_deleted() -> None:
    settings = {
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.prune.interval.ms": "60000",
    }
    with Broker(settings=settings) as broker:
        queue = Queue(broker.bootstrap)
        queue.produce(20)
        member = queue.member()
        member.fetch(wait_ms=LONG_MS)
        for offset in range(0, 20, 2):
            assert member.acknowledge((offset, offset, [ACCEPT])) is KafkaCode.NONE
        assert state_start(broker) == 0
        broker.clock.advance(minutes=1)
        wait_until(lambda: state_start(broker) > 10, "the start is deleted")
        queue.close()
        broker.stop()
        broker.start()
        again = ShareMember(broker.bootstrap, queue.name, queue.name)
        again.join()
        found = again.fetch(wait_ms=LONG_MS).ranges
        got = [n for first, last, _ in found for n in range(first, last + 1)]
        assert got == list(range(1, 20, 2))
        again.close()


def test_state_that_cannot_be_written_again_is_not_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.prune.interval.ms": "60000",
    }
    write, refused = Log._write, []

    def write_with_a_full_disk(log: Log, *arguments: Any) -> Any:
        if "__share_group_state" in log.directory:
            refused.append(log.directory)
            raise NoSpace("no room")
        return write(log, *arguments)

    with Broker(settings=settings) as broker:
        queue = Queue(broker.bootstrap)
        queue.produce(20)
        member = queue.member()
        member.fetch(wait_ms=LONG_MS)
        for offset in range(0, 20, 2):
            assert member.acknowledge((offset, offset, [ACCEPT])) is KafkaCode.NONE
        monkeypatch.setattr(Log, "_write", write_with_a_full_disk)
        broker.clock.advance(minutes=1)
        wait_until(lambda: bool(refused), "an attempt to write the state again")
        monkeypatch.undo()
        assert state_start(broker) == 0
        queue.close()
        broker.stop()
        broker.start()
        again = ShareMember(broker.bootstrap, queue.name, queue.name)
        again.join()
        found = again.fetch(wait_ms=LONG_MS).ranges
        got = [n for first, last, _ in found for n in range(first, last + 1)]
        assert got == list(range(1, 20, 2))
        again.close()


def test_a_restart_keeps_what_was_acknowledged_and_the_counts(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        queue = Queue(broker.bootstrap)
        queue.produce(10)
        one = queue.member()
        one.fetch(wait_ms=LONG_MS)
        assert one.acknowledge((2, 4, [ACCEPT]), (6, 6, [RELEASE])) is KafkaCode.NONE
        queue.close()
        broker.stop()
        broker.start()
        again = ShareMember(broker.bootstrap, queue.name, queue.name)
        again.join()
        found = again.fetch(wait_ms=LONG_MS).ranges
        counts = {n: count for first, last, count in found for n in range(first, last + 1)}
        # Those that the connection gave back when it was closed were delivered once.
        assert set(counts) == {0, 1, 5, 6, 7, 8, 9}
        assert set(counts.values()) <= {1, 2}
        assert counts[6] == 2
        again.close()
