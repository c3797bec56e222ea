"""What the share coordinator keeps, and that every record comes back from its bytes.

Covers coordinators/share/stored.py, coordinators/codecs/share_state.py.
"""

from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some

from millstream.coordinators.codecs.share_state import (
    NO_COUNT,
    NO_START,
    ShareKey,
    ShareUpdate,
    SnapshotChange,
    StoredShare,
    UpdateChange,
    decode,
    encode,
)
from millstream.coordinators.decision import Ticket
from millstream.coordinators.share import stored
from millstream.coordinators.share.state_batches import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    StateBatch,
)
from millstream.coordinators.share.stored import (
    ShareStateDecision,
    ShareStateEnv,
    ShareStates,
    Written,
)
from millstream.errors import KafkaCode
from tests.coordinators.world import image_of, refused, topic_id

Decide = Callable[[ShareStates, ShareStateEnv], ShareStateDecision]
KEY = ShareKey("workers", topic_id(0), 1)
UPDATES = 3

number = some.integers(0, 2**31 - 1)
long_number = some.integers(-1, 2**63 - 1)
batches = some.lists(
    some.builds(
        StateBatch,
        some.integers(0, 2**50),
        some.integers(0, 2**50),
        some.sampled_from([0, 2, 4]),
        some.integers(0, 999),
    ),
    max_size=3,
).map(tuple)
keys = some.builds(ShareKey, some.text(max_size=9), some.uuids(), number)
snapshots = some.builds(
    StoredShare,
    number,
    number,
    number,
    long_number,
    some.integers(-1, 99),
    long_number,
    long_number,
    batches,
)
updates = some.builds(ShareUpdate, number, number, long_number, some.integers(-1, 99), batches)


@given(
    some.builds(SnapshotChange, keys, some.none() | snapshots)
    | some.builds(UpdateChange, keys, updates)
)
def test_a_change_comes_back_from_its_record(change: SnapshotChange | UpdateChange) -> None:
    assert decode(*encode(change)) == change


def test_records_are_kafkas() -> None:
    """Written out by hand from Kafka's message definitions."""
    key = ShareKey("g", UUID("ab" * 16), 2)
    batch = StateBatch(5, 9, ACKNOWLEDGED, 1)
    change = UpdateChange(key, ShareUpdate(1, 3, 5, 4, (batch,)))
    found_key, found = encode(change)
    assert found_key == bytes.fromhex("0001 0001 67" + "ab" * 16 + "00000002")
    one = "0000000000000005 0000000000000009 02 0001 00"
    fields = "0000 00000001 00000003 0000000000000005 02" + one + "01 00 04 00000004"
    assert found == bytes.fromhex(fields)


def test_other_kinds_are_passed_over() -> None:
    assert decode(bytes.fromhex("0007 0001 67"), b"") is None
    with pytest.raises(ValueError):
        decode(encode(SnapshotChange(KEY, None))[0], bytes.fromhex("0009"))


def test_the_name_of_a_share_partition_is_kafkas() -> None:
    assert ShareKey("g", UUID(int=1), 7).name == "g:AAAAAAAAAAAAAAAAAAAAAQ:7"


def updates_of(states: ShareStates) -> dict[ShareKey, int]:
    return {key: newest.updates for key, newest in states.newest.items()}


class World:
    """A shard without a loop, whose state is always what its records say."""

    def __init__(self) -> None:
        self.states = ShareStates()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.image = image_of(orders=4)
        self.now_ms = 1_000

    def env(self) -> ShareStateEnv:
        return ShareStateEnv(self.now_ms, self.image, UPDATES, Ticket())

    def step(
        self, decide: Callable[[ShareStates, ShareStateEnv], ShareStateDecision]
    ) -> StoredShare:
        decision = decide(self.states, self.env())
        for record in decision.records:
            self.log.append(encode(record))
            self.states.apply(record)
        self.check_replay(0)
        assert decision.reply is not None
        return decision.reply

    def check_replay(self, start: int) -> None:
        replayed = ShareStates()
        for key, value in self.log[start:]:
            change = decode(key, value)
            assert change is not None
            replayed.apply(change)
        assert replayed.partitions == self.states.partitions
        if start == 0:
            assert replayed.newest == self.states.newest
        else:
            assert updates_of(replayed) == updates_of(self.states)

    def begin(self, start_offset: int = 0, state_epoch: int = 1) -> StoredShare:
        return self.step(
            lambda states, env: stored.initialize(
                states, KEY, state_epoch=state_epoch, start_offset=start_offset, env=env
            )
        )

    def write(
        self, start: int, *batches: StateBatch, leader: int = 0, epoch: int = 1, done: int = 0
    ) -> StoredShare:
        written = Written(epoch, leader, start, done, batches)
        return self.step(lambda states, env: stored.write(states, KEY, written, env))

    def read(self, leader: int = 0) -> StoredShare:
        return self.step(lambda states, env: stored.read(states, KEY, leader_epoch=leader, env=env))


def test_what_is_written_is_read() -> None:
    world = World()
    world.begin()
    world.write(0, StateBatch(0, 4, ACKNOWLEDGED, 1))
    world.write(0, StateBatch(5, 9, AVAILABLE, 1), done=5)
    found = world.read()
    assert found.batches == (StateBatch(0, 4, ACKNOWLEDGED, 1), StateBatch(5, 9, AVAILABLE, 1))
    assert (found.start_offset, found.finished_count, found.state_epoch) == (0, 5, 1)


def test_after_some_updates_a_snapshot_follows() -> None:
    world = World()
    world.begin()
    for offset in range(2 * UPDATES + 2):
        world.write(0, StateBatch(offset, offset, ACKNOWLEDGED, 1))
    kinds = ["update" if key[1] else "snapshot" for key, _ in world.log]
    assert kinds == ["snapshot", *["update"] * 3, "snapshot", *["update"] * 3, "snapshot"]
    # The last snapshot says everything.
    world.check_replay(len(world.log) - 1)


def test_once_everything_is_written_again_the_rest_of_the_log_may_go() -> None:
    world = World()
    world.begin()
    world.write(3, StateBatch(4, 9, ARCHIVED, 2))
    end = len(world.log)
    for record in stored.snapshots(world.states, world.env()):
        world.log.append(encode(record))
        world.states.apply(record)
    world.check_replay(end)
    # An update whose snapshot is cut off says nothing by itself.
    world.log[:] = world.log[1:]
    world.check_replay(0)


def test_an_older_leader_is_fenced_once_a_newer_one_has_read() -> None:
    world = World()
    world.begin()
    world.read(leader=3)
    assert refused(lambda: world.write(0, leader=2)) is KafkaCode.FENCED_LEADER_EPOCH
    assert refused(lambda: world.read(leader=2)) is KafkaCode.FENCED_LEADER_EPOCH
    world.write(0, leader=3)
    world.write(0, leader=-1)


def test_a_leader_that_knows_an_older_start_is_fenced() -> None:
    world = World()
    world.begin()
    world.write(5, StateBatch(6, 9, ACKNOWLEDGED, 1))
    again = world.begin(start_offset=2, state_epoch=4)
    assert (again.batches, again.start_offset, again.finished_count) == ((), 2, 0)
    assert refused(lambda: world.write(6, epoch=1)) is KafkaCode.FENCED_STATE_EPOCH
    assert refused(lambda: world.begin(state_epoch=3)) is KafkaCode.FENCED_STATE_EPOCH


def test_writes_that_arrive_in_another_order_do_not_move_the_start_back() -> None:
    world = World()
    world.begin()
    world.write(10, StateBatch(10, 14, ACKNOWLEDGED, 1))
    world.write(5, StateBatch(5, 9, ACKNOWLEDGED, 1))
    assert world.read().start_offset == 10
    assert world.read().batches == (StateBatch(10, 14, ACKNOWLEDGED, 1),)


def test_what_was_never_begun_is_unknown() -> None:
    world = World()
    assert refused(world.read) is KafkaCode.INVALID_REQUEST
    assert refused(lambda: world.write(0)) is KafkaCode.INVALID_REQUEST
    found = world.step(lambda states, env: stored.summary(states, KEY, env))
    assert (found.start_offset, found.finished_count) == (NO_START, NO_COUNT)
    assert world.begin(start_offset=NO_START).finished_count == NO_COUNT


def test_deleting_is_complete_and_may_be_repeated() -> None:
    world = World()
    world.begin()
    for _ in range(2):
        world.step(lambda states, env: stored.delete(states, KEY, env))
    assert world.states.partitions == {}
    assert list(world.states.names()) == []
    world.begin()
    assert [record.key for record in stored.tombstones(world.states, KEY.topic_id)] == [KEY]


def test_partitions_that_do_not_exist_are_refused() -> None:
    world = World()
    world.image = image_of(orders=1)
    assert refused(world.begin) is KafkaCode.UNKNOWN_TOPIC_OR_PARTITION
    negative = KEY._replace(partition=-1)
    call = lambda: stored.summary(world.states, negative, world.env())  # noqa: E731
    assert refused(call) is KafkaCode.INVALID_REQUEST
