"""Whether a request is served: the one place that decides it.

An `Admission` holds everything that a produce or a fetch depends on besides its own bytes:
the topic's options, the replica's standing, permissions and limits. Every route of a request
only checks whether its admission is current, and otherwise gets another one here. A new rule
(authorisation, quotas) is added here and holds on all routes at once. A change of the rule
must bump the generation.

The generation is bumped by: changes of a topic's or the node's options (`node/topics.py`,
`node/state.py`), of a replica's role, ISR or disk (`replication/partition.py`,
`replication/replicated.py`), and of permissions (`Admissions.use`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from millstream.errors import KafkaCode
from millstream.model import INTERNAL_TOPICS, Principal
from millstream.replication.admission import Generation, Refusal, WriteTerms
from millstream.replication.partition import Partition
from millstream.storage.incoming import batch_rules
from millstream.storage.values import INT64_MAX

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


class Authorizer(Protocol):
    """Permissions: None means allowed. A change of them bumps the generation."""

    def write(self, principal: Principal, topic: str) -> Refusal | None: ...
    def read(self, principal: Principal, topic: str) -> Refusal | None: ...
    def read_group(self, principal: Principal, group_id: str) -> Refusal | None: ...


class AllowAll:
    """Without security, every principal may do everything."""

    def write(self, principal: Principal, topic: str) -> Refusal | None:
        return None

    def read(self, principal: Principal, topic: str) -> Refusal | None:
        return None

    def read_group(self, principal: Principal, group_id: str) -> Refusal | None:
        return None


class Admissions:
    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._authorizer: Authorizer = AllowAll()
        # All of them are of the generation below.
        self._kept: dict[tuple[Principal, Partition], Admission] = {}
        self._kept_of = generation.number

    def use(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._generation.bump()

    def of(self, principal: Principal, partition: Partition) -> Admission:
        """The current admission."""
        if self._kept_of != self._generation.number or len(self._kept) > _KEPT_MAX:
            self._kept.clear()
            self._kept_of = self._generation.number
        found = self._kept.get((principal, partition))
        if found is None:
            found = self._kept[principal, partition] = self._decide(principal, partition)
        return found

    def _decide(self, principal: Principal, partition: Partition) -> Admission:
        topic = partition.topic_partition.topic
        standing, config = partition.standing(), partition.log.config
        write_denial = _internal(topic) or self._authorizer.write(principal, topic)
        read_denial = self._authorizer.read(principal, topic)

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
        self, principal: Principal, group_id: str, topics: Iterable[str]
    ) -> CommitAdmission:
        refusals = {topic: self._authorizer.read(principal, topic) for topic in topics}
        return CommitAdmission(
            self._generation.number,
            self._authorizer.read_group(principal, group_id),
            {topic: refusal for topic, refusal in refusals.items() if refusal is not None},
        )


def _internal(topic: str) -> Refusal | None:
    """Its records are a coordinator's state; it would trust records from a client."""
    if topic not in INTERNAL_TOPICS:
        return None
    return Refusal(KafkaCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
