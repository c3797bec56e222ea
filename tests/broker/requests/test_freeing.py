"""The memory of a large request is given back a little at a time, and only if nobody needs it."""

import weakref

from millstream.broker.requests import freeing
from millstream.broker.requests.freeing import free
from millstream.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from millstream.wire.message import Message


def topic(partitions: int) -> ListOffsetsTopic:
    return ListOffsetsTopic(
        name="t",
        partitions=[
            ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=-1)
            for index in range(partitions)
        ],
    )


def request(topics: list[ListOffsetsTopic]) -> ListOffsetsRequest:
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)


class Deaths:
    """How many of the messages are freed."""

    def __init__(self, messages: list[Message]) -> None:
        self.count = 0
        self._watched = [weakref.ref(message, self._note) for message in messages]

    def _note(self, _: object) -> None:
        self.count += 1


def test_every_element_is_freed() -> None:
    topics = [topic(1_000) for _ in range(3)] + [topic(3) for _ in range(600)]
    partitions: list[Message] = [each for one in topics for each in one.partitions]
    deaths = Deaths([*topics, *partitions])
    remains: list[object] = [request(topics)]
    expected = len(topics) + len(partitions)
    del topics, partitions
    assert deaths.count == 0
    free(remains)
    assert remains == []
    assert deaths.count == expected


class Watched:
    """A list of the partitions of a topic, and how many of them die whenever a part of it goes."""

    def __init__(self, one: ListOffsetsTopic) -> None:
        deaths = Deaths(list(one.partitions))
        freed = self.freed = []  # type: list[int]

        class Noting(list[object]):
            def copy(self) -> "Noting":
                return Noting(self)

            def __delitem__(self, place: object) -> None:
                super().__delitem__(place)  # type: ignore[arg-type]
                freed.append(deaths.count - sum(freed))

        self.partitions = Noting(one.partitions)


def test_few_elements_are_freed_at_once() -> None:
    one = topic(5_000)
    watched = Watched(one)
    freed = watched.freed
    remains: list[object] = [watched.partitions]
    del one, watched
    free(remains)
    assert sum(freed) == 5_000
    assert max(freed) <= freeing._FREED_AT_ONCE_MAX


def test_a_long_list_in_a_single_topic_is_not_freed_with_it() -> None:
    one = topic(5_000)
    watched = Watched(one)
    freed = watched.freed
    one.partitions = watched.partitions  # type: ignore[assignment]
    remains: list[object] = [request([topic(1), one])]
    del one, watched
    free(remains)
    assert sum(freed) == 5_000
    assert max(freed) <= freeing._FREED_AT_ONCE_MAX


def test_what_somebody_keeps_is_left_as_it_is() -> None:
    one = topic(1_000)
    kept = one.partitions
    free([request([one])])
    del one
    assert [partition.partition_index for partition in kept] == list(range(1_000))


def test_what_was_prepared_from_a_request_is_freed_too() -> None:
    partitions: list[Message] = [*topic(1_000).partitions]
    deaths = Deaths(partitions)
    named = {("t", index): partition for index, partition in enumerate(partitions)}
    remains: list[object] = [(list(named.values()), set(named)), named]
    del partitions, named
    assert deaths.count == 0
    free(remains)
    assert deaths.count == 1_000
