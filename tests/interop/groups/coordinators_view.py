"""What the coordinator of a group believes: who has what, and who is to have what."""

from millstream.coordinators.codecs.embedded import decode_assignment
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.consumer_group_describe import (
    ConsumerGroupAssignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescription,
)
from millstream.wire.apis.describe_groups import DescribeGroupsGroup, DescribeGroupsRequest
from tests.support.raw_client import RawClient


def described(bootstrap: str, group: str) -> str:
    """For people, and never an error: another failure is being explained."""
    problems = []
    for address in bootstrap.split(","):
        try:
            return _ask(address, group)
        except (OSError, ValueError, KafkaError) as error:
            problems.append(f"{address} says nothing about {group}: {error!r}")
    return "\n".join(problems)


def _ask(address: str, group: str) -> str:
    with RawClient(address) as client:
        request = ConsumerGroupDescribeRequest(
            group_ids=[group], include_authorized_operations=False
        )
        [found] = client.ask(request, 1).groups
        if found.error_code == KafkaCode.NONE:
            return _show(found)
        [classic] = client.ask(DescribeGroupsRequest(groups=[group]), 5).groups
    if classic.error_code != KafkaCode.NONE:
        raise KafkaError(KafkaCode(classic.error_code))
    return _show_classic(classic)


def _show(group: ConsumerGroupDescription) -> str:
    epochs = f"epoch {group.group_epoch}, assigned in {group.assignment_epoch}"
    lines = [f"to the node, {group.group_id} is {group.group_state}, {epochs}"]
    for member in group.members:
        has, target = _places(member.assignment), _places(member.target_assignment)
        place = f"{member.client_id} in epoch {member.member_epoch}"
        lines.append(f"  {place} has {has}" + ("" if has == target else f", is to have {target}"))
    return "\n".join(lines)


def _places(assignment: ConsumerGroupAssignment) -> list[str]:
    return [
        f"{row.topic_name}-{partition}"
        for row in assignment.topic_partitions
        for partition in row.partitions
    ]


def _show_classic(group: DescribeGroupsGroup) -> str:
    lines = [f"to the node, {group.group_id} is {group.group_state}"]
    for member in group.members:
        has = decode_assignment(bytes(member.member_assignment))
        lines.append(f"  {member.client_id} has {has}")
    return "\n".join(lines)
