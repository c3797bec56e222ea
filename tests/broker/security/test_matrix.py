"""Every API in every version, for each kind of client: compared with a table written by hand
from Kafka's documentation of its ACLs.

Covers security/operations.py, broker/requests/permissions.py, broker/security/authorizer.py,
broker/handlers.
"""

import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from millstream.broker.requests.routes import served_apis
from millstream.errors import KafkaCode
from millstream.model import NO_TOPIC_ID
from millstream.security.acl import Operation, PatternType, Permission, ResourceType
from millstream.wire.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    api_versions,
    commit_group,
    compact_topic,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    last_batch,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    peek_share_group,
    produce,
    prove_node,
    push_telemetry,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from millstream.wire.message import Message, Request
from tests.support.broker import Broker
from tests.support.named_clients import credulous_broker
from tests.support.raw_client import RawClient

TOPIC_DENIED = KafkaCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = KafkaCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = KafkaCode.CLUSTER_AUTHORIZATION_FAILED
ID_DENIED = KafkaCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
DENIALS = {TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, ID_DENIED}
NODES_ONLY = "nodes only"


class Case(NamedTuple):
    """A request, what it needs by Kafka's documentation, and the codes of a denial."""

    request: Request[Any]
    # "TYPE:OPERATION" on the one resource of the type that the request names.
    needs: tuple[str, ...]
    denied: KafkaCode | None
    versions: range | None = None


T, G, X, CLUSTER = "t", "g", "x", "kafka-cluster"
TOPIC_ID = uuid.UUID(int=7)  # replaced by the id of the topic


def cases() -> Iterator[Case]:
    yield Case(_produce(None), ("TOPIC:WRITE",), TOPIC_DENIED)
    yield Case(_produce(X), ("TOPIC:WRITE", "TRANSACTIONAL_ID:WRITE"), ID_DENIED, range(3, 99))
    yield Case(_fetch(-1), ("TOPIC:READ",), TOPIC_DENIED)
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic: Any = list_offsets.ListOffsetsTopic(name=T, partitions=[partition])
    request: Any = list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])
    yield Case(request, ("TOPIC:DESCRIBE",), TOPIC_DENIED)
    topic = metadata.MetadataRequestTopic(name=T)
    request = metadata.MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
    yield Case(request, ("TOPIC:DESCRIBE",), TOPIC_DENIED)
    yield from _group_cases()
    yield from _share_cases()
    yield from _transaction_cases()
    yield from _topic_cases()
    yield from _option_cases()
    yield from _cluster_cases()
    yield from _node_cases()
    yield from _quota_cases()
    yield from _open_cases()


def _produce(transactional_id: str | None) -> produce.ProduceRequest:
    partition = produce.ProducePartitionData(index=0, records=b"no batch")
    topic = produce.ProduceTopicData(name=T, topic_id=TOPIC_ID, partition_data=[partition])
    return produce.ProduceRequest(
        transactional_id=transactional_id, acks=1, timeout_ms=1000, topic_data=[topic]
    )


def _fetch(replica_id: int) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topic = fetch.FetchTopic(topic=T, topic_id=TOPIC_ID, partitions=[partition])
    return fetch.FetchRequest(
        replica_id=replica_id,
        replica_state=fetch.FetchReplicaState(replica_id=replica_id),
        max_wait_ms=0,
        min_bytes=0,
        topics=[topic],
    )


def _group_cases() -> Iterator[Case]:
    commit = offset_commit.OffsetCommitPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topic: Any = offset_commit.OffsetCommitTopic(name=T, topic_id=TOPIC_ID, partitions=[commit])
    request: Any = offset_commit.OffsetCommitRequest(group_id=G, topics=[topic])
    yield Case(request, ("GROUP:READ", "TOPIC:READ"), GROUP_DENIED)
    topic = offset_fetch.OffsetFetchTopic(name=T, topic_id=TOPIC_ID, partition_indexes=[0])
    group = offset_fetch.OffsetFetchGroup(group_id=G, topics=[topic])
    request = offset_fetch.OffsetFetchRequest(group_id=G, topics=[topic], groups=[group])
    yield Case(request, ("GROUP:DESCRIBE", "TOPIC:DESCRIBE"), GROUP_DENIED)
    request = find_coordinator.FindCoordinatorRequest(key=G, coordinator_keys=[G])
    yield Case(request, ("GROUP:DESCRIBE",), GROUP_DENIED)
    request = find_coordinator.FindCoordinatorRequest(key=X, coordinator_keys=[X], key_type=1)
    yield Case(request, ("TRANSACTIONAL_ID:DESCRIBE",), ID_DENIED, range(1, 99))
    request = join_group.JoinGroupRequest(
        group_id=G, session_timeout_ms=1, member_id="", protocol_type="", protocols=[]
    )
    yield Case(request, ("GROUP:READ",), GROUP_DENIED)
    member: dict[str, Any] = {"group_id": G, "member_id": "m"}
    request = heartbeat.HeartbeatRequest(generation_id=1, **member)
    yield Case(request, ("GROUP:READ",), GROUP_DENIED)
    gone = (
        leave_group.MemberIdentity(member_id="m")
        if hasattr(leave_group, "MemberIdentity")
        else None
    )
    request = leave_group.LeaveGroupRequest(members=[] if gone is None else [gone], **member)
    yield Case(request, ("GROUP:READ",), GROUP_DENIED)
    request = sync_group.SyncGroupRequest(
        generation_id=1, protocol_type="p", protocol_name="p", assignments=[], **member
    )
    yield Case(request, ("GROUP:READ",), GROUP_DENIED)
    yield Case(describe_groups.DescribeGroupsRequest(groups=[G]), ("GROUP:DESCRIBE",), GROUP_DENIED)
    yield Case(delete_groups.DeleteGroupsRequest(groups_names=[G]), ("GROUP:DELETE",), GROUP_DENIED)
    one = offset_delete.OffsetDeletePartition(partition_index=0)
    topic = offset_delete.OffsetDeleteTopic(name=T, partitions=[one])
    request = offset_delete.OffsetDeleteRequest(group_id=G, topics=[topic])
    yield Case(request, ("GROUP:DELETE", "TOPIC:READ"), GROUP_DENIED)
    peeked = peek_share_group.PeekedTopic(topic=T, partitions=[])
    request = peek_share_group.PeekShareGroupRequest(group_id=G, topics=[peeked])
    yield Case(request, ("GROUP:DESCRIBE", "TOPIC:DESCRIBE"), GROUP_DENIED)
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id=G, member_id="", member_epoch=5, subscribed_topic_names=[T]
    )
    yield Case(request, ("GROUP:READ", "TOPIC:DESCRIBE"), GROUP_DENIED)
    request = consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=[G], include_authorized_operations=False
    )
    yield Case(request, ("GROUP:DESCRIBE",), GROUP_DENIED)
    yield from _streams_cases()


def _streams_cases() -> Iterator[Case]:
    reader = streams_group_heartbeat.StreamsSubtopology(
        subtopology_id="0",
        source_topics=[T],
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    topology = streams_group_heartbeat.StreamsTopology(epoch=0, subtopologies=[reader])
    request: Any = streams_group_heartbeat.StreamsGroupHeartbeatRequest(
        group_id=G,
        member_id="m",
        member_epoch=5,
        endpoint_information_epoch=0,
        topology=topology,
    )
    yield Case(request, ("GROUP:READ", "TOPIC:DESCRIBE"), GROUP_DENIED)
    request = streams_group_describe.StreamsGroupDescribeRequest(
        group_ids=[G], include_authorized_operations=False
    )
    yield Case(request, ("GROUP:DESCRIBE",), GROUP_DENIED)


def _share_cases() -> Iterator[Case]:
    request: Any = share_group_heartbeat.ShareGroupHeartbeatRequest(
        group_id=G, member_id="m", member_epoch=5, subscribed_topic_names=[T]
    )
    yield Case(request, ("GROUP:READ", "TOPIC:DESCRIBE"), GROUP_DENIED)
    request = share_group_describe.ShareGroupDescribeRequest(
        group_ids=[G], include_authorized_operations=False
    )
    yield Case(request, ("GROUP:DESCRIBE",), GROUP_DENIED)
    row = share_fetch.ShareFetchPartition(partition_index=0, acknowledgement_batches=[])
    request = share_fetch.ShareFetchRequest(
        group_id=G,
        member_id="m",
        share_session_epoch=0,
        max_wait_ms=0,
        min_bytes=0,
        max_records=1,
        batch_size=1,
        topics=[share_fetch.ShareFetchTopic(topic_id=TOPIC_ID, partitions=[row])],
        forgotten_topics_data=[],
    )
    yield Case(request, ("GROUP:READ", "TOPIC:READ"), GROUP_DENIED)
    request = share_acknowledge.ShareAcknowledgeRequest(
        group_id=G, member_id="m", share_session_epoch=-1, topics=[]
    )
    yield Case(request, ("GROUP:READ",), GROUP_DENIED)
    wanted = describe_share_group_offsets.ShareOffsetsTopicWanted(topic_name=T, partitions=[0])
    group = describe_share_group_offsets.ShareOffsetsWanted(group_id=G, topics=[wanted])
    request = describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[group])
    yield Case(request, ("GROUP:DESCRIBE", "TOPIC:DESCRIBE"), GROUP_DENIED)
    start = alter_share_group_offsets.ShareOffsetsAlteredPartition(
        partition_index=9, start_offset=0
    )
    altered = alter_share_group_offsets.ShareOffsetsAlteredTopic(topic_name=T, partitions=[start])
    request = alter_share_group_offsets.AlterShareGroupOffsetsRequest(group_id=G, topics=[altered])
    yield Case(request, ("GROUP:READ", "TOPIC:READ"), GROUP_DENIED)
    deleted = delete_share_group_offsets.ShareOffsetsDeletedTopic(topic_name=T)
    request = delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
        group_id=G, topics=[deleted]
    )
    yield Case(request, ("GROUP:DELETE", "TOPIC:READ"), GROUP_DENIED)


def _transaction_cases() -> Iterator[Case]:
    producer: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0}
    id_needed = ("TRANSACTIONAL_ID:WRITE",)
    request: Any = init_producer_id.InitProducerIdRequest(
        transactional_id=X, transaction_timeout_ms=-1
    )
    yield Case(request, id_needed, ID_DENIED)
    request = init_producer_id.InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=0
    )
    yield Case(request, ("TOPIC:WRITE",), CLUSTER_DENIED)
    yield Case(request, ("CLUSTER:IDEMPOTENT_WRITE",), CLUSTER_DENIED)
    topic: Any = add_partitions_to_txn.AddPartitionsToTxnTopic(name=T, partitions=[0])
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=X,
        v3_and_below_producer_id=1,
        v3_and_below_topics=[topic],
        transactions=[
            add_partitions_to_txn.AddPartitionsToTxnTransaction(
                transactional_id=X, topics=[topic], verify_only=True, **producer
            )
        ],
    )
    yield Case(request, ("TRANSACTIONAL_ID:WRITE", "TOPIC:WRITE"), ID_DENIED, range(4))
    yield Case(request, ("CLUSTER:CLUSTER_ACTION",), CLUSTER_DENIED, range(4, 99))
    request = add_offsets_to_txn.AddOffsetsToTxnRequest(transactional_id=X, group_id=G, **producer)
    yield Case(request, ("TRANSACTIONAL_ID:WRITE", "GROUP:READ"), ID_DENIED)
    request = end_txn.EndTxnRequest(transactional_id=X, committed=False, **producer)
    yield Case(request, id_needed, ID_DENIED)
    topic = write_txn_markers.WritableTxnMarkerTopic(name=T, partition_indexes=[9])
    marker = write_txn_markers.WritableTxnMarker(
        transaction_result=False, topics=[topic], coordinator_epoch=0, **producer
    )
    request = write_txn_markers.WriteTxnMarkersRequest(markers=[marker])
    yield Case(request, ("CLUSTER:ALTER",), CLUSTER_DENIED)
    yield Case(request, ("CLUSTER:CLUSTER_ACTION",), CLUSTER_DENIED)
    commit = txn_offset_commit.TxnOffsetCommitPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    topic = txn_offset_commit.TxnOffsetCommitTopic(name=T, partitions=[commit])
    request = txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id=X, group_id=G, topics=[topic], **producer
    )
    yield Case(request, ("TRANSACTIONAL_ID:WRITE", "GROUP:READ", "TOPIC:READ"), ID_DENIED)
    request = describe_transactions.DescribeTransactionsRequest(transactional_ids=[X])
    yield Case(request, ("TRANSACTIONAL_ID:DESCRIBE",), ID_DENIED)
    # Ours: the ids of a group's members begin with `millstream:<group>:`.
    request = commit_group.CommitGroupRequest(group=G, run="r", batch=0, members=[])
    yield Case(request, ("TRANSACTIONAL_ID:WRITE:millstream:g:",), ID_DENIED)
    request = last_batch.LastBatchRequest(group=G, run="r")
    yield Case(request, ("TRANSACTIONAL_ID:WRITE:millstream:g:",), ID_DENIED)


def _topic_cases() -> Iterator[Case]:
    topic: Any = create_topics.CreatableTopic(
        name=T, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    request: Any = create_topics.CreateTopicsRequest(topics=[topic], validate_only=True)
    yield Case(request, ("TOPIC:CREATE",), TOPIC_DENIED)
    yield Case(request, ("CLUSTER:CREATE",), TOPIC_DENIED)
    topic = delete_topics.DeletableTopic(name="gone", topic_id=NO_TOPIC_ID)
    request = delete_topics.DeleteTopicsRequest(
        topics=[topic], topic_names=["gone"], timeout_ms=9000
    )
    yield Case(request, ("TOPIC:DELETE:gone",), TOPIC_DENIED)
    one = delete_records.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = delete_records.DeleteRecordsTopic(name=T, partitions=[one])
    request = delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
    yield Case(request, ("TOPIC:DELETE",), TOPIC_DENIED)
    asked = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic=T, partitions=[asked])
    request = offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])
    yield Case(request, ("TOPIC:DESCRIBE",), TOPIC_DENIED)
    topic = create_partitions.CreatePartitionsTopic(name=T, count=9, assignments=None)
    request = create_partitions.CreatePartitionsRequest(
        topics=[topic], timeout_ms=1, validate_only=True
    )
    yield Case(request, ("TOPIC:ALTER",), TOPIC_DENIED)
    topic = describe_producers.DescribeProducersTopic(name=T, partition_indexes=[0])
    request = describe_producers.DescribeProducersRequest(topics=[topic])
    yield Case(request, ("TOPIC:READ",), TOPIC_DENIED)
    topic = describe_topic_partitions.DescribeTopicPartitionsTopic(name=T)
    request = describe_topic_partitions.DescribeTopicPartitionsRequest(topics=[topic])
    yield Case(request, ("TOPIC:DESCRIBE",), TOPIC_DENIED)
    request = compact_topic.CompactTopicRequest(topic=T, is_started=False)
    yield Case(request, ("TOPIC:ALTER",), TOPIC_DENIED)


def _option_cases() -> Iterator[Case]:
    for number, name, kind, code in (
        (2, T, "TOPIC", TOPIC_DENIED),
        (4, "", "CLUSTER", CLUSTER_DENIED),
        (32, G, "GROUP", GROUP_DENIED),
    ):
        where: dict[str, Any] = {"resource_type": number, "resource_name": name}
        resource: Any = describe_configs.DescribeConfigsResource(configuration_keys=None, **where)
        request: Any = describe_configs.DescribeConfigsRequest(resources=[resource])
        yield Case(request, (f"{kind}:DESCRIBE_CONFIGS",), code)
        resource = alter_configs.AlterConfigsResource(configs=[], **where)
        request = alter_configs.AlterConfigsRequest(resources=[resource], validate_only=True)
        yield Case(request, (f"{kind}:ALTER_CONFIGS",), code)
        resource = incremental_alter_configs.IncrementalAlterConfigsResource(configs=[], **where)
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[resource], validate_only=True
        )
        yield Case(request, (f"{kind}:ALTER_CONFIGS",), code)


def _cluster_cases() -> Iterator[Case]:
    anything: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": "nothing",
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    yield Case(describe_acls.DescribeAclsRequest(**anything), ("CLUSTER:DESCRIBE",), CLUSTER_DENIED)
    creation = acl("User:somebody", "TOPIC:READ")
    request: Any = create_acls.CreateAclsRequest(creations=[creation])
    yield Case(request, ("CLUSTER:ALTER",), CLUSTER_DENIED)
    request = delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**anything)])
    yield Case(request, ("CLUSTER:ALTER",), CLUSTER_DENIED)
    request = describe_log_dirs.DescribeLogDirsRequest(topics=[])
    # Before version 3 the response has no place for it: it is empty.
    yield Case(request, ("CLUSTER:DESCRIBE",), CLUSTER_DENIED, range(3, 99))
    request = elect_leaders.ElectLeadersRequest(topic_partitions=[])
    yield Case(request, ("CLUSTER:ALTER",), CLUSTER_DENIED, range(1, 99))
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[])
    yield Case(request, ("CLUSTER:ALTER",), CLUSTER_DENIED)
    request = list_partition_reassignments.ListPartitionReassignmentsRequest()
    yield Case(request, ("CLUSTER:DESCRIBE",), CLUSTER_DENIED)


def _node_cases() -> Iterator[Case]:
    part = alter_replica_log_dirs.AlterReplicaLogDirTopic(name="t", partitions=[0])
    moved = alter_replica_log_dirs.AlterReplicaLogDir(path="/elsewhere", topics=[part])
    request: Any = alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[moved])
    yield Case(request, ("CLUSTER:ALTER",), CLUSTER_DENIED)
    request = describe_quorum.DescribeQuorumRequest(topics=[])
    yield Case(request, ("CLUSTER:DESCRIBE",), CLUSTER_DENIED)
    request = update_features.UpdateFeaturesRequest(feature_updates=[], validate_only=True)
    yield Case(request, ("CLUSTER:ALTER",), CLUSTER_DENIED)
    request = unregister_broker.UnregisterBrokerRequest(broker_id=99)
    yield Case(request, ("CLUSTER:ALTER",), CLUSTER_DENIED)
    request = list_config_resources.ListConfigResourcesRequest()
    yield Case(request, ("CLUSTER:DESCRIBE_CONFIGS",), CLUSTER_DENIED)


def _quota_cases() -> Iterator[Case]:
    request: Any = describe_client_quotas.DescribeClientQuotasRequest(components=[], strict=False)
    yield Case(request, ("CLUSTER:DESCRIBE_CONFIGS",), CLUSTER_DENIED)
    entity = alter_client_quotas.AlteredQuotaEntity(entity_type="user", entity_name="a")
    entry = alter_client_quotas.AlteredQuotas(entity=[entity], ops=[])
    request = alter_client_quotas.AlterClientQuotasRequest(entries=[entry], validate_only=True)
    yield Case(request, ("CLUSTER:ALTER_CONFIGS",), CLUSTER_DENIED)


def _open_cases() -> Iterator[Case]:
    """No denial: what may not be seen is left out, or there is nothing to protect."""
    yield Case(list_groups.ListGroupsRequest(), (), None)
    yield Case(
        list_transactions.ListTransactionsRequest(state_filters=[], producer_id_filters=[]),
        (),
        None,
    )
    request: Any = describe_cluster.DescribeClusterRequest(
        include_cluster_authorized_operations=True
    )
    yield Case(request, (), None)
    request = api_versions.ApiVersionsRequest(client_software_name="a", client_software_version="1")
    yield Case(request, (), None)
    request = get_telemetry_subscriptions.GetTelemetrySubscriptionsRequest(
        client_instance_id=NO_TOPIC_ID
    )
    yield Case(request, (), None)
    request = push_telemetry.PushTelemetryRequest(
        client_instance_id=uuid.uuid4(),
        subscription_id=0,
        terminating=False,
        compression_type=0,
        metrics=b"",
    )
    yield Case(request, (), None)
    # It answers with a challenge; only the cluster's secret answers that.
    yield Case(prove_node.ProveNodeRequest(node_id=1, proof=b""), (), None)


# Tested with their mechanisms, and not by names that a node believes.
ELSEWHERE = {
    # Only a node that has proved itself is heard: tests/broker/handlers.
    "tell_partition_states",
    "initialize_share_group_state",
    "read_share_group_state",
    "write_share_group_state",
    "delete_share_group_state",
    "read_share_group_state_summary",
    "sasl_handshake",
    "sasl_authenticate",
    "create_delegation_token",
    "renew_delegation_token",
    "expire_delegation_token",
    "describe_delegation_token",
    "describe_user_scram_credentials",
    "alter_user_scram_credentials",
}


def acl(principal: str, needed: str) -> create_acls.AclCreation:
    kind, operation, *rest = needed.split(":", 2)
    resource_type = ResourceType[kind]
    names = {"TOPIC": T, "GROUP": G, "TRANSACTIONAL_ID": X, "CLUSTER": CLUSTER}
    return create_acls.AclCreation(
        resource_type=resource_type,
        resource_name=rest[0] if rest else names[kind],
        resource_pattern_type=PatternType.LITERAL,
        principal=principal,
        host="*",
        operation=Operation[operation],
        permission_type=Permission.ALLOW,
    )


CASES = list(cases())


def codes_in(message: Any) -> set[int]:
    """Every error code of a response, however deep."""
    found: set[int] = set()
    for name in type(message).declared_fields:
        value = getattr(message, name)
        if name.endswith("error_code") and name != "topic_config_error_code":
            found.add(value)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Message):
                found |= codes_in(one)
    return found


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with credulous_broker({"auto.create.topics.enable": "false"}) as running:
        with RawClient(running.bootstrap, client_id="root") as root:
            topic = create_topics.CreatableTopic(
                name=T, num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
            root.ask(create_topics.CreateTopicsRequest(topics=[topic]), 5)
            for key_type in (0, 1):
                # Creates the internal topics.
                asked = find_coordinator.FindCoordinatorRequest(key="k", key_type=key_type)
                root.ask(asked, 3)
        yield running


@pytest.fixture(scope="module")
def topic_id(broker: Broker) -> uuid.UUID:
    with RawClient(broker.bootstrap, client_id="root") as root:
        wanted = metadata.MetadataRequestTopic(name=T)
        found = root.ask(metadata.MetadataRequest(topics=[wanted]), 12)
        return uuid.UUID(int=found.topics[0].topic_id.int)


def with_topic_id(request: Request[Any], topic_id: uuid.UUID) -> Request[Any]:
    """Topics by their id have to exist."""

    def visit(message: Any) -> None:
        for name in type(message).declared_fields:
            value = getattr(message, name)
            if value == TOPIC_ID:
                setattr(message, name, topic_id)
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, Message):
                    visit(one)

    visit(request)
    return request


def allow(broker: Broker, principal: str, needs: tuple[str, ...]) -> None:
    with RawClient(broker.bootstrap, client_id="root") as root:
        creations = [acl(principal, needed) for needed in needs]
        answer = root.ask(create_acls.CreateAclsRequest(creations=creations), 3)
        assert codes_in(answer) <= {KafkaCode.NONE}, answer


def versions(case: Case) -> list[int]:
    api = type(case.request).api
    wanted = case.versions or range(99)
    return [v for v in range(api.min_version, api.max_version + 1) if v in wanted]


def name_of(case: Case) -> str:
    return f"{type(case.request).api.name}-{'+'.join(case.needs)}"


def ask(broker: Broker, client_id: str, case: Case, version: int) -> set[int]:
    with RawClient(broker.bootstrap, client_id=client_id) as client:
        return codes_in(client.ask(case.request, version)) & DENIALS


def test_every_api_that_is_served_is_in_the_matrix() -> None:
    tested = {type(case.request).api.name for case in CASES}
    assert {api.name for api in served_apis()} - ELSEWHERE == tested


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_matrix(broker: Broker, topic_id: uuid.UUID, case: Case) -> None:
    with_topic_id(case.request, topic_id)
    expected = set() if case.denied is None else {case.denied}
    allowed = f"user-{uuid.uuid4().hex}"
    allow(broker, f"User:{allowed}", case.needs)
    by_node = set() if "CLUSTER:CLUSTER_ACTION" in case.needs else expected
    if type(case.request).api.name in ("write_txn_markers", "offset_for_leader_epoch"):
        by_node = set()
    if type(case.request).api.name == "fetch":
        by_node = set()
    for version in versions(case):
        assert ask(broker, "ANONYMOUS", case, version) == expected, version
        assert ask(broker, "nobody", case, version) == expected, version
        assert ask(broker, allowed, case, version) == set(), version
        assert ask(broker, "root", case, version) == set(), version
        assert ask(broker, "node-5", case, version) == by_node, version


@pytest.mark.parametrize("case", [c for c in CASES if len(c.needs) > 1], ids=name_of)
def test_each_of_several_needs_is_needed(broker: Broker, topic_id: uuid.UUID, case: Case) -> None:
    with_topic_id(case.request, topic_id)
    for missing in case.needs:
        some = f"some-{uuid.uuid4().hex}"
        allow(broker, f"User:{some}", tuple(need for need in case.needs if need != missing))
        for version in versions(case):
            assert ask(broker, some, case, version), (missing, version)


@pytest.mark.parametrize("version", [11, 13, 18])
def test_only_nodes_fetch_for_replicas(broker: Broker, topic_id: uuid.UUID, version: int) -> None:
    allow(broker, "User:no-node", ("CLUSTER:CLUSTER_ACTION", "TOPIC:READ"))
    request = with_topic_id(_fetch(5), topic_id)
    case = Case(request, (), None)
    # On a standalone node there are no replicas: never a record, whoever asks.
    with RawClient(broker.bootstrap, client_id="no-node") as client:
        assert codes_in(client.ask(request, version)) - {KafkaCode.NONE}
    assert ask(broker, "root", case, version) == set()
