"""What one client may hold in groups of every kind, however it comes to it."""

from collections.abc import Iterator
from typing import Any

import pytest

from millstream.broker.coordination import member_quota
from millstream.broker.coordination.member_quota import (
    MEMBERS_MAX,
    METADATA_BYTES_MAX,
    Caller,
    MemberQuota,
    member_bytes,
    shared_bytes,
)
from millstream.coordinators.classic.group import ClassicGroup, ClassicMember
from millstream.coordinators.codecs.changes import (
    MatchedTopics,
    SharedTopic,
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
from millstream.coordinators.consumer.group import ConsumerGroup
from millstream.coordinators.groups.state import Group
from millstream.coordinators.share.group import ShareGroup
from millstream.coordinators.streams.group import StreamsGroup
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID
from millstream.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from millstream.wire.apis.share_group_heartbeat import ShareGroupHeartbeatRequest
from millstream.wire.apis.sync_group import SyncGroupAssignment, SyncGroupRequest
from tests.broker.handlers.test_groups import find_coordinator, join
from tests.support.broker import Broker
from tests.support.raw_client import RawClient
from tests.support.streams_member import StreamsMember, counting

HOST = "/10.0.0.1"
ADDRESS = HOST[1:]
_FEW_BYTES = 4_000


def group_of(*sizes: int, host: str = HOST) -> ClassicGroup:
    members = {
        str(number): ClassicMember(str(number), None, "c", host, 1, 1, (("range", bytes(size)),))
        for number, size in enumerate(sizes)
    }
    return ClassicGroup("g", members=members)


def is_admitted(
    quota: MemberQuota,
    size: int,
    *groups: Group,
    client: str = ADDRESS,
    group_id: str = "other",
    members: int = 1,
    now_ms: int = 0,
) -> bool:
    caller = Caller(client, HOST)
    try:
        quota.admit(caller, group_id, groups, members=members, size_bytes=size, now_ms=now_ms)
    except KafkaError as error:
        return error.code is not KafkaCode.GROUP_MAX_SIZE_REACHED
    return True


def test_members_of_one_client_share_a_number_of_bytes() -> None:
    quota = MemberQuota()
    present = group_of(METADATA_BYTES_MAX // 2)
    assert is_admitted(quota, METADATA_BYTES_MAX // 3, present)
    assert not is_admitted(quota, METADATA_BYTES_MAX // 3, present)
    assert is_admitted(quota, METADATA_BYTES_MAX // 3, present, client="10.0.0.2")


def test_joins_count_until_the_members_are_counted_again() -> None:
    quota = MemberQuota()
    assert is_admitted(quota, METADATA_BYTES_MAX - 1)
    assert not is_admitted(quota, 2)
    assert is_admitted(quota, 1)
    # None of them became a member.
    assert is_admitted(quota, METADATA_BYTES_MAX, now_ms=1_000)


@pytest.mark.parametrize("count", [MEMBERS_MAX - 1, MEMBERS_MAX])
def test_a_client_has_a_number_of_members(count: int) -> None:
    present = group_of(*[0] * count)
    assert is_admitted(MemberQuota(), 0, present) is (count < MEMBERS_MAX)


def test_a_client_with_its_number_of_members_may_change_them() -> None:
    assert is_admitted(MemberQuota(), 1, group_of(*[0] * (MEMBERS_MAX + 1)), members=0)


def test_members_that_have_only_an_id_count() -> None:
    group = ClassicGroup("g", pending_members={str(n): HOST for n in range(MEMBERS_MAX)})
    assert not is_admitted(MemberQuota(), 0, group)


def test_users_at_one_address_have_a_quota_each() -> None:
    quota = MemberQuota()
    present = group_of(METADATA_BYTES_MAX)
    assert is_admitted(quota, 1, present, client="User:alice at 10.0.0.1", group_id="g")
    assert not is_admitted(quota, 1, present, client="User:alice at 10.0.0.1", now_ms=1_000)
    assert is_admitted(quota, 1, present, client="User:bob at 10.0.0.1", now_ms=1_000)


def test_a_group_that_is_gone_is_nobodys() -> None:
    quota = MemberQuota()
    alice = "User:alice at 10.0.0.1"
    assert is_admitted(quota, 1, client=alice, group_id="g")
    assert is_admitted(quota, 1, client=alice, now_ms=1_000)
    # A group of this name that comes later is counted by what is known of it then.
    assert is_admitted(quota, 1, group_of(METADATA_BYTES_MAX), client=alice, now_ms=2_000)


def consumers() -> ConsumerGroup:
    group = ConsumerGroup("g")
    group.set_member("m", StoredConsumerMember(None, None, "c", HOST, (), "a.*", 1, None))
    group.set_pattern("a.*", MatchedTopics(("a" * METADATA_BYTES_MAX,), 1, 1))
    return group


def sharers() -> ShareGroup:
    group = ShareGroup("g")
    group.set_member("m", StoredShareMember(None, "c", HOST, ()))
    shared = SharedTopic("a" * METADATA_BYTES_MAX, (0,))
    group.set_topics(SharedTopics(initialized={NO_TOPIC_ID: shared}))
    return group


def streams() -> StreamsGroup:
    group = StreamsGroup("g")
    stored = StoredStreamsMember(None, None, "c", HOST, 1, 1, "p", None, ())
    group.set_member("m", stored)
    large = InternalTopic("t", 0, 0, (("retention.ms", "1" * METADATA_BYTES_MAX),))
    group.set_topology(Topology(1, (Subtopology("0", ("a",), (), (large,), (), (), ()),)))
    return group


def assigned() -> ClassicGroup:
    group = group_of(0)
    group.members["0"].assignment = bytes(METADATA_BYTES_MAX)
    return group


@pytest.mark.parametrize("present", [consumers, sharers, streams, assigned])
def test_what_members_hold_together_is_of_the_last_client_that_brought_something(
    present: Any,
) -> None:
    group = present()
    assert shared_bytes(group) >= METADATA_BYTES_MAX
    assert member_bytes(group, next(iter(group.members))) is not None
    assert member_bytes(group, "nobody") is None
    assert not is_admitted(MemberQuota(), 1, group)
    quota = MemberQuota()
    assert is_admitted(quota, 1, client="10.0.0.2", group_id="g")
    assert not is_admitted(quota, 1, group, client="10.0.0.2", now_ms=1_000)
    assert is_admitted(quota, 1, group, now_ms=1_000)


@pytest.mark.parametrize("present", [sharers, streams])
def test_a_group_without_members_is_of_the_last_client_that_brought_something(
    present: Any,
) -> None:
    group = present()
    group.remove_member("m")
    quota = MemberQuota()
    assert is_admitted(quota, 1, group_id="g")
    for now_ms in (1_000, 2_000):
        assert not is_admitted(quota, 1, group, now_ms=now_ms)


# -- requests -------------------------------------------------------------------------


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": 3}) as running:
        yield running


@pytest.fixture
def client(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[RawClient]:
    monkeypatch.setattr(member_quota, "METADATA_BYTES_MAX", _FEW_BYTES)
    with RawClient(broker.bootstrap) as connected:
        find_coordinator(connected)
        yield connected


def consumer_beat(client: RawClient, epoch: int, **changes: Any) -> Any:
    fields: dict[str, Any] = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": 10_000 if epoch == 0 else -1,
        "subscribed_topic_names": [] if epoch == 0 else None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [] if epoch == 0 else None,
    }
    return client.ask(ConsumerGroupHeartbeatRequest(**(fields | changes)), 1)


def share_beat(client: RawClient, epoch: int, topics: list[str] | None, member: str = "m") -> Any:
    request = ShareGroupHeartbeatRequest(
        group_id="s",
        member_id=member,
        member_epoch=epoch,
        rack_id=None,
        subscribed_topic_names=topics,
    )
    return client.ask(request, 1)


FULL = KafkaCode.GROUP_MAX_SIZE_REACHED
LONG_NAMES = [f"{number:03}" + "a" * 200 for number in range(20)]


@pytest.mark.parametrize(
    "large",
    [{"subscribed_topic_names": LONG_NAMES}, {"rack_id": "r" * (2 * _FEW_BYTES)}],
    ids=["names", "rack"],
)
def test_a_consumer_that_joined_small_may_not_grow_large(
    client: RawClient, large: dict[str, Any]
) -> None:
    epoch = consumer_beat(client, 0).member_epoch
    assert consumer_beat(client, epoch, **large).error_code == FULL
    assert consumer_beat(client, epoch).error_code == KafkaCode.NONE


def test_a_consumer_may_repeat_what_it_has(client: RawClient) -> None:
    names = LONG_NAMES[:10]
    epoch = consumer_beat(client, 0, subscribed_topic_names=names).member_epoch
    for _ in range(5):
        again = consumer_beat(client, epoch, subscribed_topic_names=names)
        assert again.error_code == KafkaCode.NONE
    assert consumer_beat(client, 0, subscribed_topic_names=names).error_code == KafkaCode.NONE
    assert consumer_beat(client, 0, member_id="other", subscribed_topic_names=names).error_code == (
        FULL
    )


def test_the_topics_that_a_pattern_matches_count(broker: Broker, client: RawClient) -> None:
    for name in LONG_NAMES[:10]:
        broker.create_topic(name)
    first = consumer_beat(client, 0, subscribed_topic_names=None, subscribed_topic_regex="0.*")
    assert first.error_code == KafkaCode.NONE
    second = consumer_beat(
        client,
        0,
        member_id="other",
        subscribed_topic_names=None,
        subscribed_topic_regex="0.*aaa",
    )
    assert second.error_code == FULL
    # The pattern matches more now.
    for name in LONG_NAMES[10:]:
        broker.create_topic(name)
    assert consumer_beat(client, first.member_epoch).error_code == FULL


def test_a_sharer_that_joined_small_may_not_grow_large(client: RawClient) -> None:
    epoch = share_beat(client, 0, ["orders"]).member_epoch
    assert epoch > 0
    assert share_beat(client, epoch, LONG_NAMES).error_code == FULL
    assert share_beat(client, epoch, None).error_code == KafkaCode.NONE


def test_a_topology_counts_once_for_its_group(broker: Broker, client: RawClient) -> None:
    large = counting("orders" + "a" * 100, cleanup_policy="c" * (_FEW_BYTES // 2))
    assert StreamsMember(client, "app-1").join(large).error_code == KafkaCode.NONE
    # Not a new topology, and then one that is.
    with RawClient(broker.bootstrap) as another:
        assert StreamsMember(another, "app-1").join(large).error_code == KafkaCode.NONE
        assert StreamsMember(another, "app-2").join(large).error_code == FULL


def test_what_a_leader_assigns_counts(client: RawClient) -> None:
    def synced(size: int) -> int:
        joined = join(client, "c", 5)
        if joined.error_code == KafkaCode.MEMBER_ID_REQUIRED:
            joined = join(client, "c", 5, joined.member_id)
        return sync(client, joined, size)

    assert synced(_FEW_BYTES // 2) == KafkaCode.NONE
    joined = join(client, "d", 0)
    assert sync(client, joined, _FEW_BYTES, group="d") == FULL
    assert sync(client, joined, 10, group="d") == KafkaCode.NONE


def sync(client: RawClient, joined: Any, size: int, group: str = "c") -> int:
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=None,
        protocol_type=None,
        protocol_name=None,
        assignments=[SyncGroupAssignment(member_id=joined.member_id, assignment=bytes(size))],
    )
    return client.ask(request, 3).error_code
