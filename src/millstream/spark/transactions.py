"""One transaction, as its client sees it, and the record of what was committed last.

The coordinator does not care which process ends a transaction: a task may begin one and
write in it, and the driver, which gets the producer's id and epoch, commits it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millstream.client.blocking import Connection
from millstream.errors import KafkaCode
from millstream.model import TopicPartition
from millstream.spark.cluster import Cluster, ProducerIdentity, raise_for
from millstream.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from millstream.wire.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from millstream.wire.apis.end_txn import EndTxnRequest
from millstream.wire.apis.init_producer_id import InitProducerIdRequest
from millstream.wire.apis.offset_fetch import OffsetFetchRequest
from millstream.wire.apis.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitTopic,
)

# Transactions with an epoch for the producer's lifetime: every broker since 2.5 has them.
_ADD_PARTITIONS_MAX, _ADD_OFFSETS_MAX, _END_MAX, _OFFSETS_MAX, _INIT_MAX = 3, 3, 3, 3, 4
_GROUP, _TRANSACTION = 0, 1

_Ask = Callable[[Connection], None]


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """The last micro-batch of a sink that became visible, and the run that wrote it."""

    batch_id: int
    run_id: str


class Transaction:
    """Started by `begin`; partitions join before they are written to."""

    def __init__(self, cluster: Cluster, transactional_id: str, identity: ProducerIdentity) -> None:
        self.transactional_id = transactional_id
        self.identity = identity
        self._cluster = cluster
        self._joined: set[TopicPartition] = set()

    @classmethod
    def begin(cls, cluster: Cluster, transactional_id: str, *, timeout_ms: int) -> "Transaction":
        """Take over the name: its previous owner is fenced and its open transaction aborted."""

        def ask(connection: Connection) -> ProducerIdentity:
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            )
            answer = connection.ask(request, newest=_INIT_MAX)
            raise_for(answer.error_code, f"beginning {transactional_id}")
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        identity = cluster.retry(
            f"beginning the transaction {transactional_id}",
            lambda: cluster.on(
                cluster.coordinator_of(transactional_id, key_type=_TRANSACTION), ask
            ),
        )
        return cls(cluster, transactional_id, identity)

    def join(self, partitions: Sequence[TopicPartition]) -> None:
        """Add partitions to the transaction."""
        new = [partition for partition in partitions if partition not in self._joined]
        if not new:
            return
        topics: dict[str, list[int]] = {}
        for partition in new:
            topics.setdefault(partition.topic, []).append(partition.partition)
        rows = [AddPartitionsToTxnTopic(name=name, partitions=topics[name]) for name in topics]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=rows,
        )

        def ask(connection: Connection) -> None:
            answer = connection.ask(request, newest=_ADD_PARTITIONS_MAX)
            for topic in answer.results_by_topic_v3_and_below:
                for row in topic.results_by_partition:
                    text = f"{topic.name}-{row.partition_index} in {self.transactional_id}"
                    raise_for(row.partition_error_code, text)

        self._at_coordinator("adding partitions to", ask)
        self._joined.update(new)

    def record(self, group: str, where: TopicPartition, committed: CommittedBatch) -> None:
        """Record the batch of this transaction, to be read back by `last_committed`."""
        text = json.dumps({"batchId": committed.batch_id, "runId": committed.run_id})

        def add(connection: Connection) -> None:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                group_id=group,
            )
            answer = connection.ask(request, newest=_ADD_OFFSETS_MAX)
            raise_for(answer.error_code, f"group {group} in {self.transactional_id}")

        def commit(connection: Connection) -> None:
            row = TxnOffsetCommitPartition(
                partition_index=where.partition,
                committed_offset=committed.batch_id,
                committed_metadata=text,
            )
            request = TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                topics=[TxnOffsetCommitTopic(name=where.topic, partitions=[row])],
            )
            answer = connection.ask(request, newest=_OFFSETS_MAX)
            raise_for(answer.topics[0].partitions[0].error_code, f"recording batch in {group}")

        self._at_coordinator("adding a group to", add)
        cluster = self._cluster
        cluster.retry(
            f"recording a batch in {group}",
            lambda: cluster.on(cluster.coordinator_of(group, key_type=_GROUP), commit),
        )

    def commit(self) -> None:
        """Make everything visible at once. If the response is lost, it is requested again."""
        self._end(is_committed=True)

    def abort(self) -> None:
        self._end(is_committed=False)

    def _end(self, *, is_committed: bool) -> None:
        def ask(connection: Connection) -> None:
            request = EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                committed=is_committed,
            )
            answer = connection.ask(request, newest=_END_MAX)
            raise_for(answer.error_code, f"ending {self.transactional_id}")

        self._at_coordinator("ending", ask)

    def _at_coordinator(self, doing: str, ask: _Ask) -> None:
        cluster, name = self._cluster, self.transactional_id
        cluster.retry(
            f"{doing} the transaction {name}",
            lambda: cluster.on(cluster.coordinator_of(name, key_type=_TRANSACTION), ask),
        )


def last_committed(cluster: Cluster, group: str) -> CommittedBatch | None:
    """The newest recorded batch; waits for a transaction that is being ended."""

    def ask(connection: Connection) -> CommittedBatch | None:
        request = OffsetFetchRequest(group_id=group, topics=None, require_stable=True)
        answer = connection.ask(request, newest=7)
        raise_for(answer.error_code, f"group {group}")
        newest: CommittedBatch | None = None
        for topic in answer.topics:
            for row in topic.partitions:
                if row.error_code == KafkaCode.UNSTABLE_OFFSET_COMMIT:
                    # Not yet decided whether it counts: a temporary problem.
                    raise_for(KafkaCode.COORDINATOR_LOAD_IN_PROGRESS, f"group {group}")
                raise_for(row.error_code, f"group {group}")
                found = json.loads(row.metadata or "{}")
                if newest is None or found.get("batchId", -1) > newest.batch_id:
                    newest = CommittedBatch(found.get("batchId", -1), found.get("runId", ""))
        return newest

    return cluster.retry(
        f"asking for the last batch of {group}",
        lambda: cluster.on(cluster.coordinator_of(group, key_type=_GROUP), ask),
    )
