"""Views of made-up clusters, for the commands that look at one, and a cluster that has one."""

from collections.abc import Mapping
from typing import Any

from millstream.cli.cluster_view import TOPIC, ClusterView, PartitionView
from millstream.client.blocking import Address
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignedPartition,
    ReassignedTopic,
)
from millstream.wire.apis.describe_cluster import DescribeClusterBroker
from millstream.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribedConfig,
)
from millstream.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from millstream.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from millstream.wire.apis.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)


def broker(node: int, rack: str | None = None) -> DescribeClusterBroker:
    return DescribeClusterBroker(broker_id=node, host=f"h{node}", port=9092, rack=rack)


def view(*partitions: PartitionView, nodes: tuple[int, ...] = (1, 2, 3)) -> ClusterView:
    return ClusterView(
        "cluster", 1, {node: broker(node) for node in nodes}, {one.where: one for one in partitions}
    )


def partition(
    number: int = 0,
    leader: int = 1,
    replicas: tuple[int, ...] = (1, 2, 3),
    in_sync: tuple[int, ...] | None = None,
    *,
    topic: str = "t",
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> PartitionView:
    where = TopicPartition(topic, number)
    in_sync = replicas if in_sync is None else in_sync
    return PartitionView(where, leader, replicas, in_sync, adding, removing)


class FakeCluster:
    """Answers what commands ask of a cluster, from views: each is for one request for metadata,
    the last one for all others. Options are by (kind of resource, name)."""

    first = Address("h1", 9092)

    def __init__(self, *views: ClusterView) -> None:
        self._views = list(views)
        self.options: dict[tuple[int, str], dict[str, str]] = {}
        # Why moves are not started or cancelled.
        self.refusals: dict[TopicPartition, KafkaCode] = {}

    def __enter__(self) -> "FakeCluster":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def view(self) -> ClusterView:
        return self._views[0]

    def metadata_of_nodes(self) -> MetadataResponse:
        return self._metadata()

    def metadata(self, *, node: Address | None = None) -> MetadataResponse:
        answer = self._metadata()
        if len(self._views) > 1:
            del self._views[0]
        return answer

    def _metadata(self) -> MetadataResponse:
        topics = sorted({where.topic for where in self.view.partitions})
        return MetadataResponse(
            brokers=[MetadataBroker(node_id=n, host=f"h{n}", port=9092) for n in self.view.nodes],
            cluster_id=self.view.cluster_id,
            controller_id=self.view.controller_id,
            topics=[
                MetadataTopic(error_code=0, name=name, partitions=self._partitions(name))
                for name in topics
            ],
        )

    def partition_sizes(self) -> dict[TopicPartition, int]:
        return {}

    def live_nodes(self) -> list[DescribeClusterBroker]:
        return list(self.view.nodes.values())

    def _partitions(self, topic: str) -> list[MetadataPartition]:
        return [
            MetadataPartition(
                error_code=0,
                partition_index=one.where.partition,
                leader_id=one.leader,
                replica_nodes=list(one.replicas),
                isr_nodes=list(one.in_sync),
                offline_replicas=[],
            )
            for one in self.view.partitions.values()
            if one.where.topic == topic
        ]

    def ask(self, node: Address, request: object, version: int | None = None) -> Any:
        match request:
            case ListPartitionReassignmentsRequest():
                return self._reassignments()
            case AlterPartitionReassignmentsRequest():
                return self._reassigned(request)
            case DescribeConfigsRequest():
                return self._described(request)
            case IncrementalAlterConfigsRequest():
                return self._altered(request)
        raise AssertionError(f"nobody said how to answer {request}")

    def _reassignments(self) -> ListPartitionReassignmentsResponse:
        moving = [one for one in self.view.partitions.values() if one.is_moving]
        return ListPartitionReassignmentsResponse(
            error_code=0,
            error_message=None,
            topics=[
                OngoingTopicReassignment(
                    name=one.where.topic,
                    partitions=[
                        OngoingPartitionReassignment(
                            partition_index=one.where.partition,
                            replicas=list(one.replicas),
                            adding_replicas=list(one.adding),
                            removing_replicas=list(one.removing),
                        )
                    ],
                )
                for one in moving
            ],
        )

    def _reassigned(
        self, request: AlterPartitionReassignmentsRequest
    ) -> AlterPartitionReassignmentsResponse:
        """Moves never begin; those that are cancelled end at once."""
        return AlterPartitionReassignmentsResponse(
            error_code=0,
            error_message=None,
            responses=[
                ReassignedTopic(
                    name=topic.name,
                    partitions=[
                        ReassignedPartition(
                            partition_index=one.partition_index,
                            error_code=self._reassign(
                                TopicPartition(topic.name, one.partition_index), one.replicas
                            ),
                            error_message=None,
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def _reassign(self, where: TopicPartition, replicas: list[int] | None) -> KafkaCode:
        if where in self.refusals:
            return self.refusals[where]
        state = self.view.partitions.get(where)
        if replicas is None:
            if state is None or not state.is_moving:
                return KafkaCode.NO_REASSIGNMENT_IN_PROGRESS
            undone = PartitionView(where, state.leader, state.before, state.before)
            self.view.partitions[where] = undone
        return KafkaCode.NONE

    def _described(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    error_code=0,
                    error_message=None,
                    resource_type=one.resource_type,
                    resource_name=one.resource_name,
                    configs=[
                        _config(name, self.options.get((TOPIC, one.resource_name), {}))
                        for name in one.configuration_keys or []
                    ],
                )
                for one in request.resources
            ]
        )

    def _altered(self, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        for resource in request.resources:
            kind, name = resource.resource_type, resource.resource_name
            options = self.options.setdefault((kind, name), {})
            for one in resource.configs:
                options.pop(one.name, None)
                if one.value is not None:
                    options[one.name] = one.value
        self.options = {key: options for key, options in self.options.items() if options}
        return IncrementalAlterConfigsResponse(responses=[])


def _config(name: str, options: Mapping[str, str]) -> DescribedConfig:
    return DescribedConfig(
        name=name,
        value=options.get(name, ""),
        read_only=False,
        is_sensitive=False,
        synonyms=[],
        documentation=None,
    )
