"""Whether a request is served: the one place that decides it.

An `Admission` holds everything that a produce or a fetch depends on besides its own bytes:
the topic's options, the replica's standing, permissions and limits. Every route of a request
only checks whether its admission is current, and otherwise gets another one here. A new rule
is added here and holds on all routes at once. A change of the rule
must bump the generation.

The generation is bumped by: changes of a topic's or the node's options (`node/topics.py`,
`node/state.py`), of a replica's role, ISR or disk (`replication/partition.py`,
`replication/replicated.py`), and of permissions (`Permissions.changed`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from millstream.broker.requests.permissions import Permissions
from millstream.broker.security.authorizer import ClientConnection
from millstream.errors import KafkaCode
from millstream.lazy_dataclass import dataclass
from millstream.model import INTERNAL_TOPICS
from millstream.replication.admission import Generation, Refusal, WriteTerms
from millstream.replication.partition import Partition
from millstream.security.acl import ResourceType
from millstream.security.operations import find_rule
from millstream.storage.incoming import batch_rules
from millstream.storage.values import INT64_MAX
from millstream.wire.apis.fetch import FetchRequest
from millstream.wire.apis.offset_commit import OffsetCommitRequest
from millstream.wire.apis.produce import ProduceRequest

# A principal writes to a few partitions; beyond this many, all admissions are dropped.
_KEPT_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Admission:
    """What one principal may do with one partition; valid for one generation.

    The acks of a request, and whether it is in a transaction that the coordinator knows,
    select one of the write terms.
    """

    generation: int
    partition: Partition
    # Permissions alone: checked before the bytes of a request, and part of the terms as well.
    write_denial: Refusal | None
    write: WriteTerms
    committed_write: WriteTerms
    transactional_write: WriteTerms
    committed_transactional_write: WriteTerms
    # From the leader, and from any replica.
    read: Refusal | None
    near_read: Refusal | None

    def write_terms(self, *, is_acks_all: bool, is_transactional: bool) -> WriteTerms:
        if is_transactional:
            return self.committed_transactional_write if is_acks_all else self.transactional_write
        return self.committed_write if is_acks_all else self.write


@dataclass(frozen=True, slots=True)
class CommitAdmission:
    """What one principal may commit for one group; valid for one generation."""

    generation: int
    refusal: Refusal | None
    # By topic; a missing topic is allowed.
    denied_topics: Mapping[str, Refusal]


# The versions of these APIs need the same.
_WRITE_TOPIC: Final = find_rule(ProduceRequest.api.key, 0, ResourceType.TOPIC)
_READ_TOPIC: Final = find_rule(FetchRequest.api.key, 0, ResourceType.TOPIC)
_COMMIT_TOPIC: Final = find_rule(OffsetCommitRequest.api.key, 0, ResourceType.TOPIC)
_COMMIT_GROUP: Final = find_rule(OffsetCommitRequest.api.key, 0, ResourceType.GROUP)


class Admissions:
    def __init__(self, generation: Generation, permissions: Permissions) -> None:
        self._generation = generation
        self._permissions = permissions
        # By partition and what the authorizer asks of a connection. All are of the generation
        # below.
        self._kept: dict[object, Admission] = {}
        self._kept_of = generation.number

    def of(self, connection: ClientConnection, partition: Partition) -> Admission:
        """The current admission."""
        if self._kept_of != self._generation.number or len(self._kept) > _KEPT_MAX:
            self._kept.clear()
            self._kept_of = self._generation.number
        key: object = partition
        authorizer = self._permissions.authorizer
        if authorizer is not None:
            # Every fetch comes by here, so a `Client` would cost too much.
            key = (partition, connection.principal, connection.proved_node_id >= 0)
            if authorizer.names_hosts:
                key = (key, connection.address)
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = self._decide(connection, partition)
        return found

    def write_denial(self, connection: ClientConnection, topic: str) -> Refusal | None:
        """For a topic that this node may not have: nobody learns whether it exists. And for the
        audit log, when an admission refuses."""
        return self._permissions.denial_of(connection, _WRITE_TOPIC, topic)

    def read_denial(self, connection: ClientConnection, topic: str) -> Refusal | None:
        return self._permissions.denial_of(connection, _READ_TOPIC, topic)

    def _decide(self, connection: ClientConnection, partition: Partition) -> Admission:
        topic = partition.topic_partition.topic
        standing, config = partition.standing(), partition.log.config
        # A node may read everything: `replica_fetch` checks that it fetches for its own replicas.
        # It may write dead letters where the topic permits them.
        is_node = connection.proved_node_id >= 0
        write_denial = _internal(topic)
        if write_denial is None and not (is_node and config.takes_dead_letters):
            write_denial = self._permissions.decide(connection, _WRITE_TOPIC, topic)
        read_denial = None if is_node else self._permissions.decide(connection, _READ_TOPIC, topic)

        rules = batch_rules(config)
        transactional_rules = replace(rules, is_transactional_allowed=True)
        write = WriteTerms(
            self._generation.number,
            write_denial or standing.write,
            None if write_denial else standing.has_lease,
            rules,
            # flush.messages counts records that may be unsynced, whatever the acks.
            answers_at_once=config.flush_messages == INT64_MAX,
        )
        committed_write = replace(
            write,
            refusal=write_denial or standing.committed_write,
            has_lease=None,
            answers_at_once=False,
        )
        return Admission(
            generation=self._generation.number,
            partition=partition,
            write_denial=write_denial,
            write=write,
            committed_write=committed_write,
            transactional_write=replace(write, rules=transactional_rules),
            committed_transactional_write=replace(committed_write, rules=transactional_rules),
            read=read_denial or standing.read,
            near_read=read_denial or standing.near_read,
        )

    def of_commit(
        self, connection: ClientConnection, group_id: str, topics: Iterable[str]
    ) -> CommitAdmission:
        denial_of = self._permissions.denial_of
        refusals = {topic: denial_of(connection, _COMMIT_TOPIC, topic) for topic in topics}
        return CommitAdmission(
            self._generation.number,
            denial_of(connection, _COMMIT_GROUP, group_id),
            {topic: refusal for topic, refusal in refusals.items() if refusal is not None},
        )


def _internal(topic: str) -> Refusal | None:
    """Its records are a coordinator's state; it would trust records from a client."""
    if topic not in INTERNAL_TOPICS:
        return None
    return Refusal(KafkaCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
