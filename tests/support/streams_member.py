"""A member of a streams group, a request at a time."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millstream.errors import KafkaCode
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescription,
)
from millstream.wire.apis.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsKeyValue,
    StreamsSubtopology,
    StreamsTaskIds,
    StreamsTopicInfo,
    StreamsTopology,
)
from tests.support.raw_client import RawClient
from tests.support.waiting import wait_until


def info(name: str, **configs: str) -> StreamsTopicInfo:
    return StreamsTopicInfo(
        name=name,
        partitions=0,
        replication_factor=0,
        topic_configs=[
            StreamsKeyValue(key=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def counting(topic: str, **configs: str) -> StreamsTopology:
    """A subtopology that reads the topic, and one that counts, with a changelog."""
    reader = StreamsSubtopology(
        subtopology_id="0",
        source_topics=[topic],
        source_topic_regex=[],
        state_changelog_topics=[],
        repartition_sink_topics=[f"{topic}-repartition"],
        repartition_source_topics=[],
        copartition_groups=[],
    )
    counter = StreamsSubtopology(
        subtopology_id="1",
        source_topics=[],
        source_topic_regex=[],
        state_changelog_topics=[info(f"{topic}-changelog", **configs)],
        repartition_sink_topics=[],
        repartition_source_topics=[info(f"{topic}-repartition")],
        copartition_groups=[],
    )
    return StreamsTopology(epoch=0, subtopologies=[reader, counter])


class StreamsMember:
    def __init__(self, client: RawClient, group: str, **fields: Any) -> None:
        self.client = client
        self.group = group
        self.member_id = uuid.uuid4().hex
        self.epoch = 0
        self.tasks: list[StreamsTaskIds] = []
        self._fields = fields

    def join(self, topology: StreamsTopology) -> StreamsGroupHeartbeatResponse:
        self.epoch = 0
        return self.beat(
            topology=topology,
            rebalance_timeout_ms=60_000,
            process_id=self.member_id,
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            client_tags=[],
            **self._fields,
        )

    def beat(self, **fields: Any) -> StreamsGroupHeartbeatResponse:
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            endpoint_information_epoch=-1,
            **fields,
        )
        answer = self.client.ask(request, 0)
        if answer.error_code == KafkaCode.NONE:
            self.epoch = answer.member_epoch
        if answer.active_tasks is not None:
            self.tasks = answer.active_tasks
        return answer


def describe(client: RawClient, group: str) -> StreamsGroupDescription:
    request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    [found] = client.ask(request, 0).groups
    return found


@contextmanager
def joined_member(bootstrap: str, group: str, topic: str) -> Iterator[StreamsMember]:
    """A member that has the tasks of a topology over the topic; it leaves at the end."""
    with RawClient(bootstrap) as client:
        client.ask(FindCoordinatorRequest(key="", coordinator_keys=[group]), 4)
        member = StreamsMember(client, group)
        topology = counting(topic)
        wait_until(
            lambda: member.join(topology).error_code == KafkaCode.NONE, "the member has joined"
        )
        wait_until(lambda: bool(member.beat().error_code or member.tasks), "it has tasks")
        assert member.tasks
        yield member
        member.epoch = -1
        assert member.beat().error_code == KafkaCode.NONE
