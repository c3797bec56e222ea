"""What the console's own user may see of the node in this process.

The node's memory knows no permissions. Where an authorizer is configured, the console first asks
the node over the protocol, as its user, for something that needs the same permission.
"""

from millstream.console.asking import check
from millstream.console.console import Console
from millstream.console.facts import PartitionFacts
from millstream.console.records import fetch
from millstream.wire.apis.describe_log_dirs import DescribeLogDirsRequest


async def require_read(console: Console, topic: str, partition: PartitionFacts) -> None:
    """May the user read the records of this partition? Raises AskFailed."""
    if console.node is None or not console.node.checks_permissions or partition.is_offline:
        return
    at = max(partition.end_offset, 0)
    await fetch(console.client, partition.leader, topic, partition.index, at, max_bytes=1)


async def require_describe_cluster(console: Console) -> None:
    """May the user see what concerns the whole node? Raises AskFailed."""
    if console.node is None or not console.node.checks_permissions:
        return
    request = DescribeLogDirsRequest(topics=[])
    answer = await console.client.ask(console.node.node_id, request)
    check(answer.error_code, "this needs Describe on the cluster")
