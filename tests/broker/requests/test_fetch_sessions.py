from types import SimpleNamespace
from typing import cast

import pytest

from millstream.broker.requests.fetch_sessions import (
    EVICT_AFTER_MS,
    NO_SESSION,
    PARTITIONS_MAX,
    FetchSession,
    FetchSessions,
)
from millstream.errors import KafkaCode, KafkaError
from millstream.model import NO_TOPIC_ID, TOPIC_NAME_LENGTH_MAX
from millstream.replication.partition import Partition
from millstream.replication.waiting import FetchWaits
from millstream.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResult,
    FetchTopic,
    ForgottenTopic,
)


def request(
    session_id: int = 0, epoch: int = 0, *partitions: int, forget: tuple[int, ...] = ()
) -> FetchRequest:
    return FetchRequest(
        replica_id=-1,
        replica_epoch=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1000,
        isolation_level=0,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic("t", NO_TOPIC_ID, [FetchPartition(index, 0, 100) for index in partitions])
        ],
        forgotten=[ForgottenTopic("t", NO_TOPIC_ID, list(forget))] if forget else [],
        rack_id="",
    )


def test_an_incremental_fetch_changes_only_what_it_names() -> None:
    sessions = FetchSessions(10)
    session = sessions.open(request(0, 0, 1, 2, 3), uses_topic_ids=False, now_ms=0)
    assert session.id != NO_SESSION
    again = sessions.resume(request(session.id, 1, 4, forget=(2,)), uses_topic_ids=False, now_ms=1)
    assert again is session
    assert [index for _, index in session.partitions] == [1, 3, 4]


def test_a_session_keeps_no_name_that_is_longer_than_a_topics() -> None:
    sessions = FetchSessions(10)
    longest, longer = "t" * TOPIC_NAME_LENGTH_MAX, "t" * (TOPIC_NAME_LENGTH_MAX + 1)
    wanted = request(0, 0, 1)
    wanted.topics[0].name = longer
    opened = sessions.open(wanted, uses_topic_ids=False, now_ms=0)
    assert (opened.id, len(sessions)) == (NO_SESSION, 0)
    wanted.topics[0].name = longest
    session = sessions.open(wanted, uses_topic_ids=False, now_ms=0)
    more = request(session.id, 1, 1)
    more.topics[0].name = longer
    with pytest.raises(KafkaError) as refused:
        sessions.resume(more, uses_topic_ids=False, now_ms=1)
    assert refused.value.code is KafkaCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0


def test_a_wrong_epoch_an_unknown_id_and_a_change_of_naming_are_refused() -> None:
    sessions = FetchSessions(10)
    session = sessions.open(request(0, 0, 1), uses_topic_ids=False, now_ms=0)
    for wrong, ids, code in (
        (request(session.id, 7), False, KafkaCode.INVALID_FETCH_SESSION_EPOCH),
        (request(session.id + 1, 1), False, KafkaCode.FETCH_SESSION_ID_NOT_FOUND),
        (request(session.id, 1), True, KafkaCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ):
        with pytest.raises(KafkaError) as caught:
            sessions.resume(wrong, uses_topic_ids=ids, now_ms=1)
        assert caught.value.code == code


def test_a_full_cache_gives_no_session_until_one_has_been_idle_long_enough() -> None:
    sessions = FetchSessions(1)
    first = sessions.open(request(0, 0, 1), uses_topic_ids=False, now_ms=0)
    assert sessions.open(request(0, 0, 1), uses_topic_ids=False, now_ms=5).id == NO_SESSION
    later = sessions.open(request(0, 0, 1), uses_topic_ids=False, now_ms=EVICT_AFTER_MS)
    assert later.id not in (NO_SESSION, first.id)
    assert len(sessions) == 1


def test_only_news_is_sent_and_an_error_is_news_until_it_is_over() -> None:
    sessions = FetchSessions(1)
    session = sessions.open(request(0, 0, 1), uses_topic_ids=False, now_ms=0)
    [partition] = session.partitions.values()
    assert partition.is_news(FetchResult(1, 0, 10, 10, 0))
    assert not partition.is_news(FetchResult(1, 0, 10, 10, 0))
    assert partition.is_news(FetchResult(1, 0, 11, 11, 0))
    assert partition.is_news(FetchResult(1, KafkaCode.OFFSET_OUT_OF_RANGE))
    assert partition.is_news(FetchResult(1, KafkaCode.OFFSET_OUT_OF_RANGE))
    assert partition.is_news(FetchResult(1, 0, 11, 11, 0))
    assert not partition.is_news(FetchResult(1, 0, 11, 11, 0))


def test_an_address_that_has_taken_all_slots_gives_some_to_others() -> None:
    sessions = FetchSessions(10)

    def open_from(address: str) -> FetchSession:
        return sessions.open(request(0, 0, 1), uses_topic_ids=False, client=address, now_ms=0)

    greedy = [open_from("10.0.0.1") for _ in range(12)]
    assert [session.id == NO_SESSION for session in greedy] == [False] * 10 + [True] * 2
    others = [open_from("10.0.0.2") for _ in range(12)]
    assert sum(session.id != NO_SESSION for session in others) == 5
    assert len(sessions) == 10


def test_sessions_of_one_address_hold_a_bounded_number_of_partitions() -> None:
    sessions = FetchSessions(100)

    def open_with(count: int, address: str = "10.0.0.1") -> FetchSession:
        wanted = request(0, 0, *range(count))
        return sessions.open(wanted, uses_topic_ids=False, client=address, now_ms=0)

    assert open_with(PARTITIONS_MAX + 1).id == NO_SESSION
    kept = [open_with(PARTITIONS_MAX).id != NO_SESSION for _ in range(7)]
    assert kept == [True] * 5 + [False] * 2
    assert open_with(PARTITIONS_MAX, "10.0.0.2").id != NO_SESSION


def test_a_session_that_grows_too_large_is_closed() -> None:
    sessions = FetchSessions(10)
    session = sessions.open(request(0, 0, 1), uses_topic_ids=False, now_ms=0)
    larger = request(session.id, 1, *range(PARTITIONS_MAX + 1))
    with pytest.raises(KafkaError) as caught:
        sessions.resume(larger, uses_topic_ids=False, now_ms=1)
    assert caught.value.code == KafkaCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0


def _read_to_its_end(session: FetchSession, *, generation: int) -> SimpleNamespace:
    """The session's only partition, read and sent; the consumer is at its end. Its log."""
    log = SimpleNamespace(high_watermark=5, log_start_offset=1)
    (partition,) = session.partitions.values()
    partition.ask(FetchPartition(1, 5, 100))
    partition.was_read(cast(Partition, SimpleNamespace(log=log)), generation)
    partition.is_news(FetchResult(1, high_watermark=5, log_start_offset=1))
    return log


def _session() -> FetchSession:
    return FetchSessions(10).open(request(0, 0, 1), uses_topic_ids=False, now_ms=0)


def test_a_partition_is_read_again_only_if_something_has_changed() -> None:
    session = _session()
    assert len(session.awake(generation=7)) == 1
    log = _read_to_its_end(session, generation=7)
    assert session.awake(generation=7) == []
    log.high_watermark = 6
    assert len(session.awake(generation=7)) == 1


def test_a_partition_is_read_again_when_its_log_starts_later() -> None:
    session = _session()
    log = _read_to_its_end(session, generation=7)
    log.log_start_offset = 2
    assert len(session.awake(generation=7)) == 1


def test_a_partition_is_read_again_when_the_node_may_serve_it_otherwise() -> None:
    session = _session()
    _read_to_its_end(session, generation=7)
    assert len(session.awake(generation=8)) == 1


def test_a_partition_is_read_again_when_the_consumer_asks_for_another_offset() -> None:
    session = _session()
    _read_to_its_end(session, generation=7)
    session.update(request(session.id, 1, 1))
    assert len(session.awake(generation=7)) == 1


def test_a_consumer_that_does_not_know_the_end_yet_gets_it() -> None:
    session = _session()
    log = _read_to_its_end(session, generation=7)
    (partition,) = session.partitions.values()
    partition.is_news(FetchResult(1, code=KafkaCode.NOT_LEADER_OR_FOLLOWER))
    assert log.high_watermark == 5
    assert session.awake(generation=7) == [partition]


def test_where_a_session_waits_is_known_until_its_partitions_change() -> None:
    sessions = FetchSessions(10)
    session = sessions.open(request(0, 0, 1, 2), uses_topic_ids=False, now_ms=0)
    assert session.known_waits(generation=7) is None
    waits = [FetchWaits(), FetchWaits()]
    for each, place in zip(session.partitions.values(), waits, strict=True):
        each.was_read(cast(Partition, SimpleNamespace(fetch_waits=place)), 7)
    assert session.known_waits(generation=7) == waits
    # Another position is no other partition.
    session.update(request(session.id, 1, 1))
    assert session.known_waits(generation=7) == waits
    assert session.known_waits(generation=8) is None
    session.update(request(session.id, 2, forget=(1,)))
    assert session.known_waits(generation=7) == waits[1:]
    session.update(request(session.id, 3, 3))
    assert session.known_waits(generation=7) is None
