"""The requests by which administrators look at nodes and forget them, on a standalone node.

Covers broker/handlers/alter_replica_log_dirs.py, broker/handlers/describe_quorum.py,
broker/handlers/update_features.py, broker/handlers/unregister_broker.py,
broker/handlers/list_config_resources.py.
"""

import logging
import uuid

import pytest

from millstream.broker.handlers.unregister_broker import check_forgettable
from millstream.cluster.state import (
    BrokerState,
    ClusterImage,
    Incarnation,
    PartitionState,
    TopicState,
)
from millstream.errors import KafkaCode, KafkaError
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
from millstream.wire.apis.describe_acls import DescribeAclsRequest
from millstream.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millstream.wire.apis.describe_log_dirs import DescribeLogDirsRequest
from millstream.wire.apis.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from millstream.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from millstream.wire.apis.list_config_resources import ListConfigResourcesRequest
from millstream.wire.apis.unregister_broker import UnregisterBrokerRequest
from millstream.wire.apis.update_features import FeatureUpdate, UpdateFeaturesRequest
from tests.support.raw_client import RawClient

TOPIC_TYPE, BROKER_TYPE, LOGGER_TYPE, METRICS_TYPE, GROUP_TYPE = 2, 4, 8, 16, 32


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_stays_in_the_one_directory(client: RawClient, topic: str, version: int) -> None:
    directory = client.ask(DescribeLogDirsRequest(topics=[]), 4).results[0].log_dir

    def codes(path: str, name: str, *partitions: int) -> list[int]:
        topics = [AlterReplicaLogDirTopic(name=name, partitions=list(partitions))]
        dirs = [AlterReplicaLogDir(path=path, topics=topics)]
        answer = client.ask(AlterReplicaLogDirsRequest(dirs=dirs), version)
        return [one.error_code for one in answer.results[0].partitions]

    assert codes(directory, topic, 0, 9) == [0, KafkaCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert codes("/other", topic, 0) == [KafkaCode.LOG_DIR_NOT_FOUND]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_without_an_authorizer_there_are_no_acls_to_describe(
    client: RawClient, version: int
) -> None:
    # MirrorMaker takes this code as a reason to mirror no ACLs, and any other one as a failure.
    everything = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    answer = client.ask(everything, version)
    assert answer.error_code == KafkaCode.SECURITY_DISABLED
    assert "No Authorizer is configured" in (answer.error_message or "")
    assert answer.resources == []


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_quorum_is_the_nodes_and_its_leader_the_controller(
    client: RawClient, version: int
) -> None:
    def described(name: str):
        partitions = [DescribeQuorumPartition(partition_index=0)]
        topics = [DescribeQuorumTopic(topic_name=name, partitions=partitions)]
        return client.ask(DescribeQuorumRequest(topics=topics), version)

    answer = described("__cluster_metadata")
    [partition] = answer.topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (0, 1)
    assert [one.replica_id for one in partition.current_voters] == [1]
    assert len(answer.nodes) == (1 if version == 2 else 0)
    [other] = described("orders").topics[0].partitions
    assert other.error_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("feature", "level", "code"),
    [
        ("group.version", 1, KafkaCode.NONE),
        ("group.version", 0, KafkaCode.INVALID_UPDATE_VERSION),
        ("metadata.version", 27, KafkaCode.INVALID_UPDATE_VERSION),
    ],
)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_features_stay_where_they_are(
    client: RawClient, feature: str, level: int, code: KafkaCode, version: int
) -> None:
    update = FeatureUpdate(feature=feature, max_version_level=level)
    answer = client.ask(UpdateFeaturesRequest(feature_updates=[update]), version)
    if version == 2:
        assert answer.error_code == code
    else:
        assert answer.error_code == KafkaCode.NONE
        assert [one.error_code for one in answer.results] == [code]


def test_a_request_without_features_is_refused(client: RawClient) -> None:
    answer = client.ask(UpdateFeaturesRequest(feature_updates=[]), 1)
    assert answer.error_code == KafkaCode.INVALID_REQUEST


def test_a_node_that_never_was_cannot_be_forgotten(client: RawClient) -> None:
    answer = client.ask(UnregisterBrokerRequest(broker_id=7), 0)
    assert answer.error_code == KafkaCode.BROKER_ID_NOT_REGISTERED
    assert client.ask(UnregisterBrokerRequest(broker_id=1), 0).error_code != KafkaCode.NONE


def test_only_a_stopped_node_without_replicas_is_forgotten() -> None:
    image = ClusterImage(
        brokers={1: BrokerState(1, epoch=1)},
        incarnations={each: Incarnation(1) for each in (1, 2, 3)},
    )
    held = PartitionState(1, 0, (1,), (1, 2), 0)
    image.add_topic(TopicState("orders", uuid.UUID(int=1), [held]))
    check_forgettable(image, 3)
    for broker_id, word in ((1, "alive"), (2, "orders-0"), (4, "never")):
        with pytest.raises(KafkaError, match=word):
            check_forgettable(image, broker_id)


def test_what_has_options_is_listed_by_type(client: RawClient, topic: str) -> None:
    def listed(*types: int, version: int = 1) -> list[tuple[int, str]]:
        answer = client.ask(ListConfigResourcesRequest(resource_types=list(types)), version)
        assert answer.error_code == KafkaCode.NONE
        return [(one.resource_type, one.resource_name) for one in answer.config_resources]

    assert (TOPIC_TYPE, topic) in listed(TOPIC_TYPE)
    assert listed(BROKER_TYPE, LOGGER_TYPE) == [(BROKER_TYPE, "1"), (LOGGER_TYPE, "1")]
    assert listed(GROUP_TYPE) == []
    assert {kind for kind, _ in listed()} >= {TOPIC_TYPE, BROKER_TYPE, LOGGER_TYPE}
    assert listed(version=0) == []
    refused = client.ask(ListConfigResourcesRequest(resource_types=[3]), 1)
    assert refused.error_code == KafkaCode.UNSUPPORTED_VERSION


def test_a_subscription_to_client_metrics_is_set_described_and_listed(client: RawClient) -> None:
    def alter(name: str, **configs: str) -> int:
        resource = IncrementalAlterConfigsResource(
            resource_type=METRICS_TYPE,
            resource_name=name,
            configs=[
                IncrementallyAlterableConfig(
                    name=option.replace("_", "."), config_operation=0 if value else 1, value=value
                )
                for option, value in configs.items()
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        return client.ask(request, 1).responses[0].error_code

    def listed() -> list[str]:
        answer = client.ask(ListConfigResourcesRequest(resource_types=[]), 0)
        return [one.resource_name for one in answer.config_resources]

    assert alter("s/1", metrics="*", interval_ms="1000") == KafkaCode.NONE
    assert alter("s/1", interval_ms="1") == KafkaCode.INVALID_REQUEST
    assert alter("s/1", match="x") == KafkaCode.INVALID_CONFIG
    assert alter("", metrics="*") == KafkaCode.INVALID_REQUEST
    assert listed() == ["s/1"]
    resource = DescribeConfigsResource(
        resource_type=METRICS_TYPE, resource_name="s/1", configuration_keys=None
    )
    [found] = client.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    shown = {one.name: (one.value, one.config_source) for one in found.configs}
    assert shown == {"metrics": ("*", 7), "interval.ms": ("1000", 7), "match": ("", 5)}
    replaced = AlterConfigsResource(
        resource_type=METRICS_TYPE,
        resource_name="s/1",
        configs=[AlterableConfig(name="match", value="client_id=a")],
    )
    request = AlterConfigsRequest(resources=[replaced], validate_only=False)
    assert client.ask(request, 2).responses[0].error_code == KafkaCode.NONE
    assert alter("s/1", match="") == KafkaCode.NONE
    assert listed() == []


def test_the_level_of_a_logger_is_set_and_described(
    client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "millstream.audit")
    name = "millstream.test.broker_logger"

    def set_level(broker: str, level: str) -> int:
        config = IncrementallyAlterableConfig(name=name, config_operation=0, value=level)
        resource = IncrementalAlterConfigsResource(
            resource_type=LOGGER_TYPE, resource_name=broker, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        return client.ask(request, 1).responses[0].error_code

    assert set_level("1", "DEBUG") == KafkaCode.NONE
    assert logging.getLogger(name).level == logging.DEBUG
    assert f"options of loggers of node 1: {name}" in caplog.text
    resource = DescribeConfigsResource(
        resource_type=LOGGER_TYPE, resource_name="1", configuration_keys=[name]
    )
    described = client.ask(
        DescribeConfigsRequest(
            resources=[resource], include_synonyms=False, include_documentation=False
        ),
        4,
    ).results[0]
    assert [(one.name, one.value) for one in described.configs] == [(name, "DEBUG")]
    assert set_level("", "DEBUG") == KafkaCode.INVALID_REQUEST
    assert set_level("2", "DEBUG") == KafkaCode.INVALID_REQUEST
