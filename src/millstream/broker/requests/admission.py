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


class Admission:
    """What one principal may do with one partition; valid for one generation.

    The acks of a request, and whether it is in a transaction that the coordinator knows,
    select one of the write terms. They are made when they are first needed: a follower fetches
    thousands of partitions, and when a node fails, the generation changes with each of them.
    """

    __slots__ = (
        "_config",
        "_standing",
        "_terms",
        "generation",
        "near_read",
        "partition",
        "read",
        "write_denial",
    )

    def __init__(
        self,
        generation: int,
        partition: Partition,
        write_denial: Refusal | None,
        read_denial: Refusal | None,
    ) -> None:
        self.generation = generation
        self.partition = partition
        # Permissions alone: checked before the bytes of a request, and part of the terms as well.
        self.write_denial = write_denial
        self._standing = standing = partition.standing()
        self._config = partition.log.config
        # From the leader, and from any replica.
        self.read = read_denial or standing.read
        self.near_read = read_denial or standing.near_read
        self._terms: list[WriteTerms | None] = [None, None, None, None]

    def write_terms(self, *, is_acks_all: bool, is_transactional: bool) -> WriteTerms:
        number = (2 if is_acks_all else 0) + (1 if is_transactional else 0)
        terms = self._terms[number]
        if terms is None:
            terms = self._terms[number] = self._make_terms(is_acks_all, is_transactional)
        return terms

    def _make_terms(self, is_acks_all: bool, is_transactional: bool) -> WriteTerms:
        denial, standing, config = self.write_denial, self._standing, self._config
        rules = batch_rules(config)
        if is_transactional:
            rules = replace(rules, is_transactional_allowed=True)
        return WriteTerms(
            self.generation,
            denial or (standing.committed_write if is_acks_all else standing.write),
            None if denial or is_acks_all else standing.has_lease,
            rules,
            # flush.messages counts records that may be unsynced, whatever the acks.
            answers_at_once=not is_acks_all and config.flush_messages == INT64_MAX,
        )


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
        # A node may read everything: `replica_fetch` checks that it fetches for its own replicas.
        # It may write dead letters where the topic permits them.
        is_node = connection.proved_node_id >= 0
        write_denial = _internal(topic)
        if write_denial is None and not (is_node and partition.log.config.takes_dead_letters):
            write_denial = self._permissions.decide(connection, _WRITE_TOPIC, topic)
        read_denial = None if is_node else self._permissions.decide(connection, _READ_TOPIC, topic)
        return Admission(self._generation.number, partition, write_denial, read_denial)

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
