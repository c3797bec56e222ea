"""Topics as the cluster describes them, without a client library: for commands that answer
quickly."""

from millstream.cli.connection import Cluster, check
from millstream.cli.failure import CommandFailed, ExitCode
from millstream.errors import KafkaCode
from millstream.wire.apis.metadata import MetadataTopic


def find_topic(cluster: Cluster, name: str) -> MetadataTopic:
    """Never creates it. Raises CommandFailed."""
    if not name:
        raise CommandFailed("the name of the topic is empty", exit_code=ExitCode.USAGE)
    [topic] = cluster.metadata(name).topics
    if topic.error_code == KafkaCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise topic_missing(name)
    check(topic.error_code, f"topic {name}")
    return topic


def topic_missing(name: str) -> CommandFailed:
    return CommandFailed(
        f"topic {name} does not exist. `millstream topic list` shows the existing ones; "
        "`millstream topic create NAME` creates one"
    )


def topic_partitions(cluster: Cluster, name: str) -> list[int]:
    return sorted(one.partition_index for one in find_topic(cluster, name).partitions)
