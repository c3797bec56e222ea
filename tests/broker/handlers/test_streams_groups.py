"""Streams groups on a node, request by request.

Covers broker/handlers/streams_group_heartbeat.py, broker/handlers/streams_group_describe.py.
"""

import uuid
from collections.abc import Iterator

import pytest

from millstream.coordinators.streams.topology import StatusCode
from millstream.errors import KafkaCode
from millstream.security.acl import Operation, PatternType, Permission, ResourceType
from millstream.testing import Broker
from millstream.wire.apis.create_acls import AclCreation, CreateAclsRequest
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.list_groups import ListGroupsRequest
from millstream.wire.apis.streams_group_heartbeat import (
    StreamsEndpoint,
    StreamsGroupHeartbeatResponse,
)
from tests.support.named_clients import credulous_broker
from tests.support.raw_client import RawClient
from tests.support.share_member import create_topic
from tests.support.streams_member import StreamsMember, counting, describe
from tests.support.waiting import wait_until

AT_ONCE = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=AT_ONCE) as running:
        yield running


def connect(broker: Broker, client_id: str = "raw") -> RawClient:
    """The offsets topic exists, and is loaded."""
    with RawClient(broker.bootstrap, client_id="root") as client:
        client.ask(FindCoordinatorRequest(key="", coordinator_keys=["any"]), 4)
        loading = (KafkaCode.COORDINATOR_LOAD_IN_PROGRESS, KafkaCode.NOT_COORDINATOR)
        wait_until(
            lambda: (
                client.ask(ListGroupsRequest(states_filter=[], types_filter=[]), 5).error_code
                not in loading
            ),
            "the groups are loaded",
        )
    return RawClient(broker.bootstrap, client_id=client_id)


def statuses(answer: StreamsGroupHeartbeatResponse) -> list[int]:
    return [status.status_code for status in answer.status or ()]


def test_internal_topics_are_created_and_tasks_assigned(broker: Broker) -> None:
    topic = broker.create_topic(uuid.uuid4().hex, partitions=3).name
    with connect(broker) as client:
        endpoint = StreamsEndpoint(host="here", port=65_000)
        member = StreamsMember(client, f"app-{topic}", user_endpoint=endpoint, rack_id="r")
        first = member.join(counting(topic, cleanup_policy="compact"))
        assert first.error_code == KafkaCode.NONE
        assert statuses(first) == [StatusCode.MISSING_INTERNAL_TOPICS]
        assert {f"{topic}-changelog", f"{topic}-repartition"} <= set(broker.topic_names())
        second = member.beat()
        assert second.status == []
        assert [(row.subtopology_id, row.partitions) for row in member.tasks] == [
            ("0", [0, 1, 2]),
            ("1", [0, 1, 2]),
        ]
        assert second.partitions_by_user_endpoint is not None
        [shown] = second.partitions_by_user_endpoint
        assert (shown.user_endpoint.host, shown.user_endpoint.port) == ("here", 65_000)
        assert {row.topic: row.partitions for row in shown.active_partitions} == {
            topic: [0, 1, 2],
            f"{topic}-repartition": [0, 1, 2],
        }


def test_a_group_is_described_and_listed(broker: Broker) -> None:
    topic = broker.create_topic(uuid.uuid4().hex, partitions=2).name
    group = f"app-{topic}"
    with connect(broker) as client:
        endpoint = StreamsEndpoint(host="here", port=1)
        member = StreamsMember(client, group, user_endpoint=endpoint)
        member.join(counting(topic))
        assert describe(client, group).group_state == "NotReady"
        member.beat()
        member.beat(active_tasks=member.tasks, standby_tasks=[], warmup_tasks=[])
        found = describe(client, group)
        assert (found.error_code, found.group_state) == (KafkaCode.NONE, "Stable")
        assert found.group_epoch == found.assignment_epoch == member.epoch
        assert found.authorized_operations > 0
        assert found.topology is not None
        assert found.topology.subtopologies is not None
        reader, counter = found.topology.subtopologies
        assert reader.source_topics == [topic]
        assert reader.repartition_sink_topics == [f"{topic}-repartition"]
        [changelog] = counter.state_changelog_topics
        assert (changelog.name, changelog.partitions) == (f"{topic}-changelog", 2)
        [shown] = found.members
        assert (shown.member_id, shown.process_id) == (member.member_id, member.member_id)
        assert shown.user_endpoint is not None
        assert shown.assignment == shown.target_assignment
        assert [row.partitions for row in shown.assignment.active_tasks] == [[0, 1], [0, 1]]
        listed = client.ask(ListGroupsRequest(states_filter=[], types_filter=["streams"]), 5)
        assert (group, "streams", "Stable") in [
            (row.group_id, row.group_type, row.group_state) for row in listed.groups
        ]
        member.epoch = -1
        assert member.beat().error_code == KafkaCode.NONE
        assert describe(client, group).group_state == "Empty"


def test_a_group_survives_a_restart() -> None:
    with Broker(settings=AT_ONCE) as broker:
        topic = broker.create_topic("t", partitions=2).name
        with connect(broker) as client:
            member = StreamsMember(client, "app")
            member.join(counting(topic))
            member.beat()
            before = describe(client, "app")
        broker.stop()
        broker.start()
        with connect(broker) as client:
            after = describe(client, "app")
            # The numbers of partitions are known again with the first heartbeat.
            assert (after.group_epoch, after.members) == (before.group_epoch, before.members)
            member.client = client
            again = member.beat(active_tasks=member.tasks, standby_tasks=[], warmup_tasks=[])
            assert (again.error_code, again.active_tasks) == (KafkaCode.NONE, None)
            assert describe(client, "app").topology == before.topology


def test_topics_that_cannot_be_created_are_in_the_status(broker: Broker) -> None:
    topic = broker.create_topic(uuid.uuid4().hex).name
    with connect(broker) as client:
        member = StreamsMember(client, f"app-{topic}")
        answer = member.join(counting(topic, no_such_option="1"))
        assert statuses(answer) == [StatusCode.MISSING_INTERNAL_TOPICS]
        assert answer.status is not None
        assert f"Creation failed: {topic}-changelog" in answer.status[0].status_detail
        assert member.tasks == []


def test_a_missing_source_topic_is_a_status(broker: Broker) -> None:
    with connect(broker) as client:
        member = StreamsMember(client, "app-of-nothing")
        assert statuses(member.join(counting("no-such-topic"))) == [
            StatusCode.MISSING_SOURCE_TOPICS
        ]


@pytest.mark.parametrize("topic", ["__consumer_offsets", "no/topic"])
def test_topics_that_no_application_may_use(broker: Broker, topic: str) -> None:
    with connect(broker) as client:
        answer = StreamsMember(client, "app-of-others").join(counting(topic))
        assert answer.error_code == KafkaCode.STREAMS_INVALID_TOPOLOGY
        assert topic in (answer.error_message or "")


def test_a_topology_of_thousands_of_topics_is_refused(broker: Broker) -> None:
    topology = counting("any")
    topology.subtopologies[0].source_topics = [f"topic-{number}" for number in range(5_000)]
    with connect(broker) as client:
        answer = StreamsMember(client, "app-of-many").join(topology)
        assert answer.error_code == KafkaCode.STREAMS_INVALID_TOPOLOGY
        assert "up to 5,000 are allowed" in (answer.error_message or "")


def test_a_group_of_another_kind_is_not_described(broker: Broker) -> None:
    with connect(broker) as client:
        found = describe(client, "nobody")
        assert (found.error_code, found.members) == (KafkaCode.GROUP_ID_NOT_FOUND, [])
        assert describe(client, "").error_code == KafkaCode.INVALID_GROUP_ID


def test_the_protocol_can_be_turned_off() -> None:
    settings = {"group.coordinator.rebalance.protocols": "classic,consumer"}
    with Broker(settings=settings) as broker, connect(broker) as client:
        broker.create_topic("t")
        answer = StreamsMember(client, "app").join(counting("t"))
        assert answer.error_code == KafkaCode.UNSUPPORTED_VERSION
        assert describe(client, "app").error_code == KafkaCode.UNSUPPORTED_VERSION


# -- permissions ------------------------------------------------------------------------


def allow(broker: Broker, kind: ResourceType, name: str, operation: Operation) -> None:
    creation = AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=PatternType.PREFIXED
        if kind is ResourceType.TOPIC
        else PatternType.LITERAL,
        principal="User:app",
        host="*",
        operation=operation,
        permission_type=Permission.ALLOW,
    )
    with RawClient(broker.bootstrap, client_id="root") as client:
        client.ask(CreateAclsRequest(creations=[creation]), 3)


def test_internal_topics_need_the_permission_to_create_them() -> None:
    with credulous_broker(AT_ONCE) as broker:
        with RawClient(broker.bootstrap, client_id="root") as client:
            create_topic(client, "t")
        allow(broker, ResourceType.GROUP, "g", Operation.READ)
        allow(broker, ResourceType.GROUP, "g", Operation.DESCRIBE)
        with connect(broker, "app") as client:
            member = StreamsMember(client, "g")
            denied = member.join(counting("t"))
            assert denied.error_code == KafkaCode.TOPIC_AUTHORIZATION_FAILED
            allow(broker, ResourceType.TOPIC, "t", Operation.DESCRIBE)
            answer = member.join(counting("t"))
            assert statuses(answer) == [StatusCode.MISSING_INTERNAL_TOPICS]
            assert answer.status is not None
            assert "Unauthorized to CREATE on topics t-changelog, t-repartition." in (
                answer.status[0].status_detail
            )
            # Nothing was created: the next heartbeat misses the same.
            assert statuses(member.beat()) == [StatusCode.MISSING_INTERNAL_TOPICS]
            allow(broker, ResourceType.TOPIC, "t-", Operation.CREATE)
            member.beat()
            assert member.beat().status == []
            assert member.tasks
        with connect(broker, "other") as client:
            assert describe(client, "g").error_code == KafkaCode.GROUP_AUTHORIZATION_FAILED
