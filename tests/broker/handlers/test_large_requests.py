"""Requests that name thousands of things: each is answered, or the request is not read at all.

Covers broker/handlers.
"""

from uuid import UUID

import pytest

from millstream.errors import KafkaCode
from millstream.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from millstream.wire.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredQuotaEntity,
    AlteredQuotas,
)
from millstream.wire.apis.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from millstream.wire.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from millstream.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from millstream.wire.apis.commit_group import CommitGroupMember, CommitGroupRequest
from millstream.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from millstream.wire.apis.create_acls import AclCreation, CreateAclsRequest
from millstream.wire.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from millstream.wire.apis.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from millstream.wire.apis.describe_user_scram_credentials import (
    DescribedScramUser,
    DescribeUserScramCredentialsRequest,
)
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.join_group import JoinGroupProtocol, JoinGroupRequest
from millstream.wire.apis.list_groups import ListGroupsRequest
from millstream.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopic,
)
from millstream.wire.apis.list_transactions import ListTransactionsRequest
from millstream.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from millstream.wire.apis.offset_delete import (
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
)
from millstream.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchTopic
from millstream.wire.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from millstream.wire.apis.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadStatePartition,
    ReadStateTopic,
)
from millstream.wire.apis.sync_group import SyncGroupAssignment, SyncGroupRequest
from millstream.wire.apis.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)
from millstream.wire.apis.update_features import FeatureUpdate, UpdateFeaturesRequest
from millstream.wire.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from millstream.wire.message import Message, Request
from tests.broker.handlers.test_groups import SUBSCRIPTION, join
from tests.support.attacks import find_group
from tests.support.broker import Broker
from tests.support.raw_client import RawClient

# More than are read on the loop, so that the longer way is taken.
MANY = 3_000
INDEXES = list(range(MANY))
UNKNOWN = KafkaCode.UNKNOWN_TOPIC_OR_PARTITION


def test_partitions_of_which_some_are_unknown_are_not_added_to_a_transaction(
    client: RawClient, topic: str
) -> None:
    found = client.ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=INDEXES)],
        ),
        3,
    )
    [shown] = found.results_by_topic_v3_and_below
    assert [each.partition_index for each in shown.results_by_partition] == INDEXES
    codes = [each.partition_error_code for each in shown.results_by_partition]
    assert codes == [KafkaCode.OPERATION_NOT_ATTEMPTED] * 2 + [UNKNOWN] * (MANY - 2)


def test_only_nodes_ask_for_partitions_of_many_transactions(client: RawClient) -> None:
    one = AddPartitionsToTxnTransaction(
        transactional_id="t", producer_id=1, producer_epoch=0, verify_only=True, topics=[]
    )
    found = client.ask(AddPartitionsToTxnRequest(transactions=[one] * MANY), 5)
    assert found.error_code == KafkaCode.CLUSTER_AUTHORIZATION_FAILED


def test_markers_of_many_partitions_are_each_answered(client: RawClient) -> None:
    marker = WritableTxnMarker(
        producer_id=1,
        producer_epoch=0,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name="invented", partition_indexes=INDEXES)],
        coordinator_epoch=0,
    )
    [found] = client.ask(WriteTxnMarkersRequest(markers=[marker]), 1).markers
    assert [each.partition_index for each in found.topics[0].partitions] == INDEXES
    assert {each.error_code for each in found.topics[0].partitions} == {UNKNOWN}


def test_transactions_of_many_producers_are_looked_for(client: RawClient) -> None:
    """As by `kafka-transactions.sh find-hanging`."""
    client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 4)
    unknown = [f"state {number}" for number in INDEXES]
    found = client.ask(
        ListTransactionsRequest(state_filters=unknown, producer_id_filters=INDEXES), 1
    )
    assert found.error_code == KafkaCode.NONE
    assert found.unknown_state_filters == unknown
    assert found.transaction_states == []


def test_offsets_of_an_unknown_transaction_are_each_refused(client: RawClient, topic: str) -> None:
    partitions = [
        TxnOffsetCommitPartition(partition_index=index, committed_offset=1, committed_metadata=None)
        for index in INDEXES
    ]
    found = client.ask(
        TxnOffsetCommitRequest(
            transactional_id="never-begun",
            group_id="g",
            producer_id=5,
            producer_epoch=0,
            topics=[TxnOffsetCommitTopic(name=topic, partitions=partitions)],
        ),
        3,
    )
    assert [each.partition_index for each in found.topics[0].partitions] == INDEXES
    assert KafkaCode.NONE not in {each.error_code for each in found.topics[0].partitions}


def test_records_of_unknown_partitions_cannot_be_deleted(client: RawClient, topic: str) -> None:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=0) for index in INDEXES]
    named = DeleteRecordsTopic(name=topic, partitions=partitions)
    [found] = client.ask(DeleteRecordsRequest(topics=[named], timeout_ms=1000), 2).topics
    codes = [each.error_code for each in found.partitions]
    assert codes == [KafkaCode.NONE] * 2 + [UNKNOWN] * (MANY - 2)


def test_many_offsets_are_deleted_in_parts(client: RawClient, topic: str) -> None:
    find_group(client, "nobody")
    partitions = [OffsetDeletePartition(partition_index=index) for index in INDEXES]
    named = [OffsetDeleteTopic(name=topic, partitions=partitions)] * 2
    asked = OffsetDeleteRequest(group_id="nobody", topics=named)
    assert client.ask(asked, 0).error_code == KafkaCode.GROUP_ID_NOT_FOUND
    committed = f"group-of-{topic}"
    commit(client, committed, topic)
    found = client.ask(OffsetDeleteRequest(group_id=committed, topics=named), 0)
    assert found.error_code == KafkaCode.NONE
    assert [len(each.partitions) for each in found.topics] == [MANY, MANY]
    assert {each.error_code for one in found.topics for each in one.partitions} == {KafkaCode.NONE}
    assert committed_offset(client, committed, topic) == -1


def commit(client: RawClient, group: str, topic: str) -> None:
    find_group(client, group)
    offset = OffsetCommitPartition(
        partition_index=0, committed_offset=7, committed_leader_epoch=-1, committed_metadata=None
    )
    asked = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitTopic(name=topic, partitions=[offset])],
    )
    assert client.ask(asked, 8).topics[0].partitions[0].error_code == KafkaCode.NONE
    assert committed_offset(client, group, topic) == 7


def committed_offset(client: RawClient, group: str, topic: str) -> int:
    named = OffsetFetchTopic(name=topic, partition_indexes=[0])
    found = client.ask(OffsetFetchRequest(group_id=group, topics=[named]), 5)
    return found.topics[0].partitions[0].committed_offset


def test_epochs_of_many_topics_are_each_answered(client: RawClient, topic: str) -> None:
    names = [f"invented-{index}" for index in INDEXES]
    partition = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    asked = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(topic=name, partitions=[partition]) for name in [topic, *names]
        ]
    )
    found = client.ask(asked, 4).topics
    assert [each.topic for each in found] == [topic, *names]
    assert [each.partitions[0].error_code for each in found] == [0] + [UNKNOWN] * MANY


def test_directories_of_many_partitions(client: RawClient, topic: str) -> None:
    described = DescribableLogDirTopic(topic=topic, partitions=INDEXES)
    [directory] = client.ask(DescribeLogDirsRequest(topics=[described]), 4).results
    assert [each.partition_index for each in directory.topics[0].partitions] == [0, 1]
    moved = AlterReplicaLogDir(
        path=directory.log_dir, topics=[AlterReplicaLogDirTopic(name=topic, partitions=INDEXES)]
    )
    [found] = client.ask(AlterReplicaLogDirsRequest(dirs=[moved]), 2).results
    codes = [each.error_code for each in found.partitions]
    assert codes == [KafkaCode.NONE] * 2 + [UNKNOWN] * (MANY - 2)


def test_administration_of_many_things(client: RawClient, topic: str) -> None:
    creation = AclCreation(
        resource_type=2,
        resource_name=topic,
        resource_pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    refused = client.ask(CreateAclsRequest(creations=[creation] * MANY), 3).results
    assert [each.error_code for each in refused] == [KafkaCode.SECURITY_DISABLED] * MANY
    users = [DescribedScramUser(name=str(index)) for index in INDEXES]
    found = client.ask(DescribeUserScramCredentialsRequest(users=[*users, users[0]]), 0).results
    assert len(found) == MANY
    assert found[0].error_code == KafkaCode.DUPLICATE_RESOURCE
    moving = ListPartitionReassignmentsTopic(name=topic, partition_indexes=INDEXES)
    assert client.ask(ListPartitionReassignmentsRequest(topics=[moving]), 0).topics == []


def test_a_resource_with_more_options_than_there_are_is_refused(
    client: RawClient, topic: str
) -> None:
    options = [AlterableConfig(name=str(index), value="1") for index in INDEXES]
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=options)
    asked = AlterConfigsRequest(resources=[resource], validate_only=True)
    [found] = client.ask(asked, 2).responses
    assert found.error_code == KafkaCode.INVALID_REQUEST


def test_an_entity_has_three_types_at_most(client: RawClient) -> None:
    part = AlteredQuotaEntity(entity_type="user", entity_name="a")
    entry = AlteredQuotas(entity=[part] * MANY, ops=[])
    [found] = client.ask(AlterClientQuotasRequest(entries=[entry], validate_only=True), 1).entries
    assert found.error_code == KafkaCode.INVALID_REQUEST


def test_a_group_that_nobody_joined_takes_no_assignments(client: RawClient) -> None:
    find_group(client, "empty")
    assignments = [SyncGroupAssignment(member_id=str(index), assignment=b"") for index in INDEXES]
    asked = SyncGroupRequest(
        group_id="empty", generation_id=1, member_id="m", assignments=assignments
    )
    assert client.ask(asked, 3).error_code == KafkaCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_its_leader_does_not_assign(broker: Broker) -> None:
    """Two large requests at a time are under way: the others would wait as long as it does."""
    assignments = [SyncGroupAssignment(member_id=str(index), assignment=b"") for index in INDEXES]
    with RawClient(broker.bootstrap) as leader, RawClient(broker.bootstrap) as follower:
        find_group(leader, "led")
        # Both are given their ids before they join.
        leader_id, follower_id = (join(each, "led", 5).member_id for each in (leader, follower))
        leader.send(_joining(leader_id), 5)
        joined = join(follower, "led", 5, follower_id)
        leader.receive(JoinGroupRequest, 5)
        if joined.leader == follower_id:
            leader, follower = follower, leader
            leader_id, follower_id = follower_id, leader_id

        def sync(client: RawClient, member_id: str) -> int:
            asked = SyncGroupRequest(
                group_id="led",
                generation_id=joined.generation_id,
                member_id=member_id,
                assignments=assignments,
            )
            return client.ask(asked, 3).error_code

        assert sync(follower, follower_id) == KafkaCode.INVALID_REQUEST
        assert sync(leader, leader_id) == KafkaCode.NONE


def _joining(member_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="led",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupProtocol(name="range", metadata=SUBSCRIPTION)],
    )


def test_a_member_may_subscribe_to_many_topics(client: RawClient) -> None:
    find_group(client, "wide")
    asked = ConsumerGroupHeartbeatRequest(
        group_id="wide",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[str(index) for index in INDEXES],
        topic_partitions=[],
    )
    found = client.ask(asked, 1)
    assert (found.error_code, found.member_epoch) == (KafkaCode.NONE, 1)


def test_more_transactions_than_fit_into_a_batch_are_not_committed_together(
    client: RawClient,
) -> None:
    client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 4)
    members = [
        CommitGroupMember(transactional_id=f"millstream:g:{i}", producer_id=i, producer_epoch=0)
        for i in range(10_001)
    ]
    found = client.ask(CommitGroupRequest(group="g", run="", batch=0, members=members), 0)
    assert found.error_code == KafkaCode.INVALID_REQUEST


STATE = ReadStateTopic(
    topic_id=UUID(int=1), partitions=[ReadStatePartition(partition=0, leader_epoch=0)]
)


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        (ListGroupsRequest(states_filter=["Stable"] * MANY), 5),
        (
            UpdateFeaturesRequest(
                feature_updates=[FeatureUpdate(feature="f", max_version_level=1)] * MANY
            ),
            2,
        ),
        (ReadShareGroupStateRequest(group_id="g", topics=[STATE] * MANY), 0),
        (
            AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(name="u", mechanism=1)] * 10_001, upsertions=[]
            ),
            0,
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_request_without_a_reason_to_name_many_things_is_not_read(
    broker: Broker, asked: Request[Message], version: int
) -> None:
    with RawClient(broker.bootstrap) as leaving:
        leaving.send(asked, version)
        assert leaving.is_closed_by_peer()


def test_more_offsets_of_a_transaction_than_can_be_stored_are_not_looked_at(
    broker: Broker, topic: str
) -> None:
    offset = TxnOffsetCommitPartition(
        partition_index=0, committed_offset=1, committed_metadata=None
    )
    asked = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=5,
        producer_epoch=0,
        topics=[TxnOffsetCommitTopic(name=topic, partitions=[offset] * 25_000)],
    )
    with RawClient(broker.bootstrap) as leaving:
        leaving.send(asked, 3)
        assert leaving.is_closed_by_peer()


def test_offsets_with_more_metadata_than_can_be_stored_are_not_read(
    broker: Broker, topic: str
) -> None:
    offset = OffsetCommitPartition(
        partition_index=0,
        committed_offset=7,
        committed_leader_epoch=-1,
        committed_metadata="x" * 30_000,
    )
    asked = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitTopic(name=topic, partitions=[offset] * 50)],
    )
    with RawClient(broker.bootstrap) as leaving:
        leaving.send(asked, 8)
        assert leaving.is_closed_by_peer()


def test_a_member_that_does_not_fit_the_offsets_topic_leaves_its_group_as_it_is(
    client: RawClient,
) -> None:
    find_group(client, "kept")
    beat = ConsumerGroupHeartbeatRequest(
        group_id="kept",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert client.ask(beat, 1).member_epoch == 1
    # Half as many characters as the limit has bytes, and four bytes each.
    beat.member_id = "n"
    beat.subscribed_topic_names = [f"{index}" + "\U0001f980" * 8_000 for index in range(60)]
    assert client.ask(beat, 1).error_code == KafkaCode.INVALID_REQUEST
    beat.member_id, beat.member_epoch, beat.subscribed_topic_names = "m", 1, None
    found = client.ask(beat, 1)
    assert (found.error_code, found.member_epoch) == (KafkaCode.NONE, 1)
