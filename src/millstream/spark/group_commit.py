"""One commit for the transactions of many tasks: requests that only Millstream answers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millstream.client.blocking import Connection
from millstream.errors import KafkaCode
from millstream.spark.cluster import Cluster, raise_for
from millstream.spark.failure import SourceError
from millstream.wire.apis.commit_group import (
    CommitGroupMember,
    CommitGroupRequest,
    CommitGroupResponse,
)
from millstream.wire.apis.last_batch import LastBatchRequest, LastBatchResponse

_TRANSACTION = 1

_Ask = Callable[[Connection], None]


@dataclass(frozen=True, slots=True)
class Member:
    """An open transaction that a task left."""

    transactional_id: str
    producer_id: int
    epoch: int


def member_name(group: str, member: str) -> str:
    """A transactional id from which the coordinator knows the member's group."""
    return f"millstream:{group}:{member}"


def offers_group_commit(cluster: Cluster) -> bool:
    return cluster.retry(
        "asking what the broker offers",
        lambda: cluster.on_any(
            lambda connection: connection.versions.offers(CommitGroupRequest.api)
        ),
    )


def commit_group(
    cluster: Cluster, group: str, run_id: str, batch_id: int, members: Sequence[Member]
) -> None:
    """Commit the members' transactions as this batch, abort the group's others.

    A batch that is already committed stays unchanged: a response may have been lost.
    """

    def ask(connection: Connection) -> None:
        rows = [
            CommitGroupMember(
                transactional_id=member.transactional_id,
                producer_id=member.producer_id,
                producer_epoch=member.epoch,
            )
            for member in members
        ]
        answer = connection.ask(
            CommitGroupRequest(group=group, run=run_id, batch=batch_id, members=rows)
        )
        _check_run(answer, group)
        # The usual reason is a batch that took longer than the transaction timeout.
        text = f"{answer.error_message}; see 'kafka.transaction.timeout.ms'"
        raise_for(answer.error_code, f"{group}, batch {batch_id}: {text}")

    _at_coordinator(cluster, group, f"committing batch {batch_id} of {group}", ask)


def last_batch(cluster: Cluster, group: str, run_id: str) -> int:
    """The last committed batch; -1 for none. Takes over the group for this run."""
    last = -1

    def ask(connection: Connection) -> None:
        nonlocal last
        answer = connection.ask(LastBatchRequest(group=group, run=run_id))
        _check_run(answer, group)
        raise_for(answer.error_code, f"{group}: {answer.error_message}")
        last = answer.last_batch

    _at_coordinator(cluster, group, f"asking for the last batch of {group}", ask)
    return last


def _check_run(answer: CommitGroupResponse | LastBatchResponse, group: str) -> None:
    if answer.error_code == KafkaCode.FENCED_INSTANCE_ID:
        raise SourceError(
            "ANOTHER_RUN",
            f"{answer.error_message}: the query was started again elsewhere, and that run writes "
            f"to {group}. A checkpoint is for one running query; stop one of the two",
        )


def _at_coordinator(cluster: Cluster, group: str, what: str, ask: _Ask) -> None:
    name = member_name(group, "any")
    cluster.retry(
        what, lambda: cluster.on(cluster.coordinator_of(name, key_type=_TRANSACTION), ask)
    )
