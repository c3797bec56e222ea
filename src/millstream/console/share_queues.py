"""One share group as a queue, as the leaders of its partitions describe it."""

from dataclasses import dataclass
from typing import Final

from millstream.client.share_queue import (
    QueuePartition,
    StoredPosition,
    peek_request,
    queue_partition,
    unknown_partition,
)
from millstream.console.asking import AskFailed, ClusterClient, UnsupportedRequest, check
from millstream.console.facts import ClusterFacts
from millstream.model import TopicPartition
from millstream.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from millstream.wire.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    ShareOffsetsWanted,
)

_GROUP_RESOURCE: Final = 32
_DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"


@dataclass(frozen=True, slots=True)
class PeekedQueue:
    partitions: list[QueuePartition]
    # Letters that the nodes have written since their starts; None if nobody says.
    dead_letters: int | None
    # Why records are archived without a letter.
    dead_letter_problem: str | None
    # Nodes that did not answer.
    failures: list[str]


async def read_queue(client: ClusterClient, facts: ClusterFacts, group_id: str) -> PeekedQueue:
    """Raises AskFailed."""
    positions = await _positions(client, group_id)
    request = peek_request(group_id, positions)
    found: dict[TopicPartition, QueuePartition] = {}
    letters: int | None = None
    problem: str | None = None
    failures: list[str] = []
    for node in facts.nodes:
        try:
            answer = await client.ask(node.node_id, request)
            check(answer.error_code, f"group {group_id}", answer.error_message)
        except UnsupportedRequest:
            # Apache Kafka.
            break
        except AskFailed as failed:
            failures.append(str(failed))
            continue
        letters = (letters or 0) + answer.dead_letters
        problem = problem or answer.dead_letter_problem
        for row in answer.partitions:
            where = TopicPartition(row.topic, row.partition)
            found[where] = queue_partition(row, positions[where])
    rows = [
        found.get(where) or unknown_partition(where, stored.start)
        for where, stored in positions.items()
    ]
    return PeekedQueue(rows, letters, problem, failures)


async def _positions(client: ClusterClient, group_id: str) -> dict[TopicPartition, StoredPosition]:
    node_id = await client.coordinator(group_id)
    wanted = ShareOffsetsWanted(group_id=group_id, topics=None)
    [answer] = (await client.ask(node_id, DescribeShareGroupOffsetsRequest(groups=[wanted]))).groups
    check(answer.error_code, f"group {group_id}", answer.error_message)
    found = {
        TopicPartition(topic.topic_name, row.partition_index): StoredPosition(
            row.start_offset if row.start_offset >= 0 else None,
            row.lag if row.lag >= 0 else None,
        )
        for topic in answer.topics
        for row in topic.partitions
    }
    return dict(sorted(found.items()))


async def dead_letter_topic(client: ClusterClient, group_id: str) -> str | None:
    """None if the group has none, or its options may not be read."""
    resource = DescribeConfigsResource(
        resource_type=_GROUP_RESOURCE, resource_name=group_id, configuration_keys=[_DEAD_LETTERS]
    )
    try:
        [answer] = (await client.ask_any(DescribeConfigsRequest(resources=[resource]))).results
        check(answer.error_code, f"group {group_id}", answer.error_message)
    except AskFailed:
        return None
    return next((one.value for one in answer.configs if one.name == _DEAD_LETTERS), None) or None
