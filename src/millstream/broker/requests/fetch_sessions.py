"""Incremental fetch sessions (KIP-227): a consumer names its partitions once.

Afterwards it sends only what changed and gets only what changed. The session remembers,
per partition, the consumer's position and what it was last sent.
"""

import secrets
from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Final

from millstream.errors import KafkaCode, KafkaError
from millstream.lazy_dataclass import dataclass
from millstream.model import TOPIC_NAME_LENGTH_MAX, TopicId
from millstream.replication.partition import Partition
from millstream.replication.waiting import FetchWaits
from millstream.wire.fetch import FetchPartition, FetchRequest, FetchResult

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
# A session that was not used for this long may be replaced when the cache is full.
EVICT_AFTER_MS: Final = 120_000
# Partitions in one session, and in all sessions of one client. A larger session is not kept, nor
# one that names what cannot be a topic; the client names all its partitions each time.
PARTITIONS_MAX: Final = 20_000
_CLIENT_PARTITIONS_MAX: Final = 100_000

# A topic as the request's version identifies it: by name or by id.
TopicKey = str | TopicId


@dataclass(slots=True)
class SessionPartition:
    topic: TopicKey
    request: FetchPartition
    # What the consumer was last sent; -1 before the first response.
    high_watermark: int = -1
    log_start_offset: int = -1
    # What a consumer's last request for this offset was read from without an error, in the
    # generation below; -1 if there was none.
    partition: Partition | None = None
    generation: int = -1

    def is_news(self, result: FetchResult) -> bool:
        """Must this result be in an incremental response? Remembers what is sent."""
        changed = (
            result.records_bytes > 0
            or result.code != KafkaCode.NONE
            or result.diverging_epoch >= 0
            or result.preferred_replica >= 0
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
        )
        if result.code == KafkaCode.NONE:
            self.high_watermark = result.high_watermark
            self.log_start_offset = result.log_start_offset
        else:
            # Once the error is over, send the result again, whatever it is.
            self.high_watermark = -1
        return changed

    def was_read(self, partition: Partition, generation: int) -> None:
        self.partition = partition
        self.generation = generation

    def is_as_read(self, result: FetchResult, generation: int) -> bool:
        """Would another read give this result, which has no records, once more?"""
        if self.generation != generation or result.records_bytes:
            return False
        assert self.partition is not None
        log = self.partition.log
        if (
            log.high_watermark != result.high_watermark
            or self.request.offset < result.high_watermark
            or log.log_start_offset != result.log_start_offset
        ):
            return False
        # A transaction may have ended behind the high watermark.
        result.last_stable_offset = self.partition.last_stable_offset
        return True

    def ask(self, request: FetchPartition) -> None:
        """The consumer has another position, or other limits."""
        self.request = request
        self.generation = -1


class FetchSession:
    __slots__ = (
        "_known_waits",
        "_known_waits_of",
        "client",
        "epoch",
        "id",
        "names_no_topic",
        "partitions",
        "used_at_ms",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, *, uses_topic_ids: bool, client: str, now_ms: int) -> None:
        self.id = session_id
        self.client = client
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        # A name is longer than any topic's. It may have 32 KB.
        self.names_no_topic = False
        self.used_at_ms = now_ms
        self.partitions: dict[tuple[TopicKey, int], SessionPartition] = {}
        # Where fetches of these partitions wait, in one generation; -1 if that is not known.
        self._known_waits: list[FetchWaits] = []
        self._known_waits_of = -1

    def update(self, request: FetchRequest) -> None:
        for topic_key, partition in wanted(request, uses_topic_ids=self.uses_topic_ids):
            key = (topic_key, partition.index)
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = SessionPartition(topic_key, partition)
                if isinstance(topic_key, str) and len(topic_key) > TOPIC_NAME_LENGTH_MAX:
                    self.names_no_topic = True
                self._known_waits_of = -1
            else:
                known.ask(partition)
        for topic in request.forgotten:
            topic_key = topic.topic_id if self.uses_topic_ids else topic.name
            for index in topic.partitions:
                self.partitions.pop((topic_key, index), None)
                self._known_waits_of = -1

    def awake(self, generation: int) -> list[SessionPartition]:
        """The partitions that may have something to tell.

        All others were read in this generation, so the node still serves them in the same way;
        the consumer is at their end, and knows where they begin and end. Written out, because a
        consumer of a thousand partitions asks a thousand times per fetch.
        """
        found = []
        for each in self.partitions.values():
            if each.generation == generation:
                partition = each.partition
                assert partition is not None
                log = partition.log
                high_watermark = each.high_watermark
                if (
                    log.high_watermark == high_watermark
                    and each.request.offset >= high_watermark
                    and log.log_start_offset == each.log_start_offset
                ):
                    continue
            found.append(each)
        return found

    def known_waits(self, generation: int) -> list[FetchWaits] | None:
        """Where fetches of its partitions wait; None unless all were read in this generation."""
        if self._known_waits_of != generation:
            found = []
            for each in self.partitions.values():
                if each.generation != generation or each.partition is None:
                    return None
                found.append(each.partition.fetch_waits)
            self._known_waits, self._known_waits_of = found, generation
        return self._known_waits

    def move_to_end(self, partition: SessionPartition) -> None:
        """Move partitions that returned records to the end, so that none starves the others."""
        key = (partition.topic, partition.request.index)
        # A pipelined request may have removed it in the meantime.
        if key in self.partitions:
            self.partitions[key] = self.partitions.pop(key)


def wanted(
    request: FetchRequest, *, uses_topic_ids: bool
) -> Iterable[tuple[TopicKey, FetchPartition]]:
    for topic in request.topics:
        key = topic.topic_id if uses_topic_ids else topic.name
        for partition in topic.partitions:
            yield key, partition


class FetchSessions:
    def __init__(self, slots: int) -> None:
        self._slots = slots
        # Least recently used first.
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, request: FetchRequest, *, uses_topic_ids: bool, client: str = "", now_ms: int
    ) -> FetchSession:
        """A session for a full fetch; its id is NO_SESSION when the cache has no room."""
        self.close(request.session_id)
        session_id = self._new_id() if self._make_room(client, now_ms) else NO_SESSION
        session = FetchSession(
            session_id, uses_topic_ids=uses_topic_ids, client=client, now_ms=now_ms
        )
        session.update(request)
        # A session without partitions is not kept, as in Kafka.
        if session_id != NO_SESSION and session.partitions and self._may_keep(session):
            self._sessions[session_id] = session
        else:
            session.id = NO_SESSION
        return session

    def resume(self, request: FetchRequest, *, uses_topic_ids: bool, now_ms: int) -> FetchSession:
        """The session of an incremental fetch, with the request's changes applied."""
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(KafkaCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise KafkaError(KafkaCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(KafkaCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request)
        if len(session.partitions) > PARTITIONS_MAX or session.names_no_topic:
            self.close(session.id)
            raise KafkaError(KafkaCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = 1 if session.epoch == 0x7FFFFFFF else session.epoch + 1
        session.used_at_ms = now_ms
        self._sessions.move_to_end(session.id)
        return session

    def close(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def _may_keep(self, session: FetchSession) -> bool:
        if session.names_no_topic:
            return False
        size = len(session.partitions)
        held = (len(s.partitions) for s in self._sessions.values() if s.client == session.client)
        return size <= PARTITIONS_MAX and size + sum(held) <= _CLIENT_PARTITIONS_MAX

    def _make_room(self, client: str, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_at_ms < EVICT_AFTER_MS:
            return self._take_from_greediest(client)
        self.close(oldest.id)
        return True

    def _take_from_greediest(self, client: str) -> bool:
        """One client must not take all slots: another one gets a share of them. A client that
        loses its session opens a new one."""
        counts = Counter(session.client for session in self._sessions.values())
        greediest, count = counts.most_common(1)[0]
        if count <= counts[client] + 1:
            return False
        self.close(next(each.id for each in self._sessions.values() if each.client == greediest))
        return True

    def _new_id(self) -> int:
        while True:
            # Not guessable, so that no client can read on in another's session.
            session_id = secrets.randbelow(0x7FFFFFFF - 1) + 1
            if session_id not in self._sessions:
                return session_id
