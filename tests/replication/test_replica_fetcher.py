"""Following a leader over a socket that answers as the test says."""

import asyncio
import contextlib
import logging
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Collection

import pytest

from millstream.client.aio import Connection
from millstream.clock import Clock, SystemClock
from millstream.errors import KafkaCode, KafkaError, NoSpace
from millstream.model import TopicPartition
from millstream.replication.busy_and_quiet import QuietRule
from millstream.replication.fetch_connection import FetcherNode, FetcherSettings
from millstream.replication.replica_fetcher import ReplicaFetchers
from millstream.replication.replicated import ReplicatedPartition
from millstream.storage.values import FileRange
from millstream.wire.cursor import Cursor
from millstream.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResult,
    FetchTopicResult,
    read_fetch_request,
    write_fetch_response,
)
from millstream.wire.headers import finish_frame, read_request_header, response_header
from tests.cluster.world import HandClock
from tests.replication.test_replicated import leading, produce, replica, role
from tests.storage.logs import batch

Answer = Callable[[FetchRequest], list[FetchResult] | None]


async def believed(connection: Connection) -> None:
    """The other end knows this node without a proof."""


async def checkpointed() -> None:
    """The checkpoints are on the disk."""


class Leader:
    """A node that only knows Fetch; `answer` makes the answer, or None to say nothing."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[FetchRequest] = []
        self.connections = 0
        self._answer = answer
        self._arrived = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                cursor = Cursor(memoryview(await reader.readexactly(size)))
                header = read_request_header(cursor)
                request = read_fetch_request(cursor, header.version)
                self.requests.append(request)
                self._arrived.set()
                results = self._answer(request)
                if results is None:
                    # Until the other side hangs up.
                    await reader.read()
                    break
                out = response_header(header)
                topic_id = request.topics[0].topic_id
                pieces = write_fetch_response(
                    out,
                    header.version,
                    code=KafkaCode.NONE,
                    session_id=0,
                    topics=[FetchTopicResult("", topic_id, results)],
                )
                rest = b"".join(bytes(piece) for piece in pieces[1:])  # type: ignore[call-overload]
                finish_frame(out, len(rest))
                writer.write(bytes(out) + rest)
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.connections -= 1
        self._arrived.set()

    async def are_gone(self) -> None:
        async with asyncio.timeout(10):
            while self.connections:
                self._arrived.clear()
                await self._arrived.wait()

    async def asked(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.requests) < count:
                self._arrived.clear()
                await self._arrived.wait()


@contextlib.asynccontextmanager
async def following_of(
    answer: Answer,
    wait_counted: Callable[..., Awaitable[None] | None] = lambda partition: None,
    held_back: Collection[ReplicatedPartition] = (),
    clock: Clock | None = None,
    quiet_rule: QuietRule | None = None,
    prove: Callable[[Connection], Awaitable[None]] = believed,
    heard: Callable[[int], None] = lambda leader_id: None,
    checkpoint: Callable[[], Awaitable[None]] = checkpointed,
) -> AsyncIterator[tuple[Leader, ReplicaFetchers]]:
    leader = Leader(answer)
    server = await asyncio.start_server(leader.serve, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()[:2]

    fetchers = ReplicaFetchers(
        FetcherNode(
            broker_id=2,
            broker_epoch=lambda: 41,
            address=lambda node: address,
            prove=prove,
            checkpoint=checkpoint,
            is_held_back=lambda partition: partition in held_back,
            took=lambda partition, size_bytes: None,
            heard=heard,
            wait_counted=wait_counted,
            clock=clock or SystemClock(),
            settings=lambda: FetcherSettings(
                wait_ms=20,
                min_bytes=1,
                partition_bytes=1 << 20,
                response_bytes=10 << 20,
                timeout_seconds=30.0,
                pause_seconds_max=0.05,
            ),
            quiet_rule=quiet_rule or QuietRule(),
        )
    )
    try:
        yield leader, fetchers
    finally:
        await fetchers.stop()
        server.close()
        await leader.are_gone()


def follower() -> ReplicatedPartition:
    partition = replica(2)
    partition.apply(role(), now_ms=0)
    return partition


def records_from(leader: ReplicatedPartition, request: FetchRequest) -> list[FetchResult]:
    [wanted] = request.topics[0].partitions
    return [result_from(leader, request, wanted)]


def result_from(
    leader: ReplicatedPartition, request: FetchRequest, wanted: FetchPartition
) -> FetchResult:
    result = FetchResult(wanted.index)
    leader.require_leader().answer(
        request.replica_id, request.replica_epoch, wanted, result, max_bytes=1 << 20, now_ms=0
    )
    if isinstance(result.records, FileRange):
        result.records_bytes = result.records.length
        result.records = result.records.read()
    return result


def test_what_the_leader_has_arrives_and_is_committed_by_the_next_fetch() -> None:
    async def scenario() -> None:
        source = leading()
        produce(source, 5)
        copy = follower()
        async with following_of(lambda request: records_from(source, request)) as (node, fetchers):
            fetchers.follow(copy, 1)
            await node.asked(3)
            assert copy.log.next_offset == source.high_watermark == 5
            first = node.requests[0]
            assert (first.replica_id, first.replica_epoch) == (2, 41)

    asyncio.run(scenario())


def test_every_response_is_in_the_log_though_all_come_into_the_same_memory() -> None:
    async def scenario() -> None:
        source, copy = leading(), follower()
        async with following_of(lambda request: records_from(source, request)) as (node, fetchers):
            fetchers.follow(copy, 1)
            for number in range(5):
                produce(source, number + 1)
                async with asyncio.timeout(10):
                    while source.high_watermark < source.log.next_offset:
                        await node.asked(len(node.requests) + 1)
            written = [one.file.read_at(0, one.size_bytes) for one in source.log.segments]
            assert [one.file.read_at(0, one.size_bytes) for one in copy.log.segments] == written

    asyncio.run(scenario())


def test_a_refused_partition_is_asked_for_again_after_a_pause() -> None:
    async def scenario() -> None:
        source, copy = leading(), follower()
        produce(source)
        refusals = [FetchResult(0, KafkaCode.UNKNOWN_LEADER_EPOCH)]

        def answer(request: FetchRequest) -> list[FetchResult]:
            return [refusals.pop()] if refusals else records_from(source, request)

        async with following_of(answer) as (node, fetchers):
            fetchers.follow(copy, 1)
            await node.asked(3)
            assert copy.log.next_offset == 1

    asyncio.run(scenario())


def test_following_goes_on_after_an_answer_that_nobody_expected() -> None:
    async def scenario() -> None:
        source, copy = leading(), follower()
        produce(source)
        # A code of a later version, for example.
        refusals = [FetchResult(0, 9_999), FetchResult(0, 9_999)]  # type: ignore[arg-type]

        def answer(request: FetchRequest) -> list[FetchResult]:
            return [refusals.pop()] if refusals else records_from(source, request)

        async with following_of(answer) as (node, fetchers):
            fetchers.follow(copy, 1)
            await node.asked(4)
            assert copy.log.next_offset == 1

    asyncio.run(scenario())


async def follow_behind(
    failing: ReplicatedPartition,
    refused: Callable[[], FetchResult],
    checkpoint: Callable[[], Awaitable[None]] = checkpointed,
) -> None:
    """Follow a partition whose answers are always behind those of one that fails, and pauses."""
    source, other = leading(), follower()
    other.topic_partition = TopicPartition("t", 1)
    produce(source)
    failures = 0

    def answer(request: FetchRequest) -> list[FetchResult]:
        nonlocal failures
        wanted = {each.index: each for each in request.topics[0].partitions}
        failures += 0 in wanted
        results = [refused()] if 0 in wanted else []
        return [*results, result_from(source, request, wanted[1])]

    async with following_of(answer, checkpoint=checkpoint) as (node, fetchers):
        fetchers.follow(failing, 1)
        fetchers.follow(other, 1)
        async with asyncio.timeout(10):
            while source.high_watermark == 0 or failures < 4:
                await node.asked(len(node.requests) + 1)
        assert other.log.next_offset == 1
        assert failures < len(node.requests)
        assert node.connections == 1


def test_an_answer_that_nobody_expected_does_not_hold_up_the_other_partitions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # A code of a later version, for example.
    asyncio.run(follow_behind(follower(), lambda: FetchResult(0, 9_999)))
    [told] = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert told.getMessage() == "cannot follow t-0; it is tried again"


def test_a_checkpoint_that_cannot_be_written_does_not_hold_up_the_other_partitions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing = replica(2, may_cut=lambda where, offset: False)
    failing.apply(role(), now_ms=0)

    async def fail() -> None:
        raise NoSpace("the disk is full")

    def refused() -> FetchResult:
        return FetchResult(0, KafkaCode.OFFSET_OUT_OF_RANGE, log_start_offset=5)

    asyncio.run(follow_behind(failing, refused, fail))
    [told] = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert told.getMessage() == "cannot follow t-0; it is tried again"


def test_a_pause_that_ends_after_the_disk_failed_hurries_nobody() -> None:
    async def scenario() -> None:
        source, failing, other = leading(), follower(), follower()
        other.topic_partition = TopicPartition("t", 1)

        def answer(request: FetchRequest) -> list[FetchResult]:
            wanted = {each.index: each for each in request.topics[0].partitions}
            if 0 not in wanted:
                # It pauses.
                failing.go_offline("the disk failed")
            refused = [FetchResult(0, KafkaCode.UNKNOWN_SERVER_ERROR)] if 0 in wanted else []
            return [*refused, result_from(source, request, wanted[1])]

        async with following_of(answer) as (node, fetchers):
            fetchers.follow(failing, 1)
            fetchers.follow(other, 1)
            async with asyncio.timeout(10):
                while failing.offline_reason is None:
                    await node.asked(len(node.requests) + 1)
            # Longer than the longest pause.
            await asyncio.sleep(0.1)
            await node.asked(len(node.requests) + 2)
            assert node.requests[-1].max_wait_ms == 20

    asyncio.run(scenario())


def test_a_leader_for_which_this_node_is_dead_is_not_heard() -> None:
    async def scenario() -> None:
        source, copy = leading(), follower()
        heard: list[int] = []
        heard_while_dead: list[int] = []
        refusals = [FetchResult(0, KafkaCode.STALE_BROKER_EPOCH) for _ in range(2)]

        def answer(request: FetchRequest) -> list[FetchResult]:
            heard_while_dead[:] = heard
            return [refusals.pop()] if refusals else records_from(source, request)

        async with following_of(answer, heard=heard.append) as (node, fetchers):
            fetchers.follow(copy, 1)
            # The third request shows what the two refusals before it have counted for.
            await node.asked(3)
            assert heard_while_dead == []
            await node.asked(4)
            assert heard[0] == 1

    asyncio.run(scenario())


def test_a_new_partition_does_not_wait_for_a_long_poll_to_end() -> None:
    async def scenario() -> None:
        first, second = follower(), replica(2)
        second.topic_partition = type(second.topic_partition)("t", 1)
        second.apply(role(), now_ms=0)
        async with following_of(lambda request: None) as (node, fetchers):
            fetchers.follow(first, 1)
            await node.asked(1)
            fetchers.follow(second, 1)
            await node.asked(2)
            asked = [one.index for one in node.requests[1].topics[0].partitions]
            assert asked == [0, 1]

    asyncio.run(scenario())


def test_what_is_added_while_the_connection_is_made_is_in_its_first_request() -> None:
    async def scenario() -> None:
        first, second = follower(), replica(2)
        second.topic_partition = type(second.topic_partition)("t", 1)
        second.apply(role(), now_ms=0)
        is_proving, is_proved = asyncio.Event(), asyncio.Event()

        async def prove(connection: Connection) -> None:
            is_proving.set()
            await is_proved.wait()

        async with following_of(lambda request: None, prove=prove) as (node, fetchers):
            fetchers.follow(first, 1)
            await is_proving.wait()
            fetchers.follow(second, 1)
            is_proved.set()
            await node.asked(1)
            asked = [one.index for one in node.requests[0].topics[0].partitions]
            assert (asked, node.connections) == ([0, 1], 1)

    asyncio.run(scenario())


def test_a_partition_that_was_left_is_not_asked_for() -> None:
    async def scenario() -> None:
        source, copy = leading(), follower()
        async with following_of(lambda request: records_from(source, request)) as (node, fetchers):
            fetchers.follow(copy, 1)
            await node.asked(1)
            fetchers.leave(copy)
            copy.apply(role(2, epoch=2, version=2), now_ms=0)
            produce(copy)
            # Nothing is there to ask for: it would wait for ever.
            other = replica(2)
            other.topic_partition = type(other.topic_partition)("t", 1)
            other.apply(role(), now_ms=0)
            fetchers.follow(other, 1)
            await node.asked(2)
            assert {one.index for one in node.requests[-1].topics[0].partitions} == {1}
            assert copy.log.next_offset == 1

    asyncio.run(scenario())


def test_a_partition_that_is_held_back_is_left_out_for_a_while() -> None:
    async def scenario() -> None:
        source, copy = leading(), follower()
        produce(source)
        held_back = {copy}
        answer = lambda request: records_from(source, request)  # noqa: E731
        async with following_of(answer, held_back=held_back) as (node, fetchers):
            fetchers.follow(copy, 1)
            await asyncio.sleep(0)
            assert node.requests == []
            held_back.clear()
            await node.asked(2)
            assert copy.log.next_offset == 1

    asyncio.run(scenario())


def test_where_every_replica_syncs_first_the_next_fetch_waits_for_the_disk() -> None:
    async def scenario() -> None:
        source, copy = leading(), follower()
        produce(source)
        synced = asyncio.Event()

        async def wait() -> None:
            await synced.wait()

        def wait_counted(partition: ReplicatedPartition) -> Awaitable[None] | None:
            return wait() if partition.log.next_offset and not synced.is_set() else None

        answer = lambda request: records_from(source, request)  # noqa: E731
        async with following_of(answer, wait_counted) as (node, fetchers):
            fetchers.follow(copy, 1)
            await node.asked(1)
            for _ in range(20):
                await asyncio.sleep(0)
            assert source.high_watermark == 0
            synced.set()
            await node.asked(2)
            assert source.high_watermark == 1

    asyncio.run(scenario())


def test_a_partition_that_is_deleted_while_it_is_synced_does_not_end_the_others() -> None:
    async def scenario() -> None:
        source, deleted, other = leading(), follower(), follower()
        produce(source)
        other.topic_partition = TopicPartition("t", 1)
        is_waiting = asyncio.Event()
        on_disk: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wait_counted(partition: ReplicatedPartition) -> Awaitable[None] | None:
            if partition is not deleted or not partition.log.next_offset:
                return None
            is_waiting.set()
            return on_disk

        answer = lambda request: records_from(source, request)  # noqa: E731
        async with following_of(answer, wait_counted) as (node, fetchers):
            fetchers.follow(deleted, 1)
            async with asyncio.timeout(10):
                await is_waiting.wait()
            fetchers.leave(deleted)
            on_disk.set_exception(KafkaError(KafkaCode.UNKNOWN_TOPIC_OR_PARTITION))
            fetchers.follow(other, 1)
            await node.asked(2)
            assert [one.index for one in node.requests[1].topics[0].partitions] == [1]

    asyncio.run(scenario())


def test_where_nothing_happens_is_asked_for_apart_until_something_does() -> None:
    async def scenario() -> None:
        sources, copies = [], []
        for index in range(3):
            source, copy = leading(), replica(2)
            source.topic_partition = copy.topic_partition = TopicPartition("t", index)
            copy.apply(role(), now_ms=0)
            sources.append(source)
            copies.append(copy)

        def answer(request: FetchRequest) -> list[FetchResult]:
            wanted = request.topics[0].partitions
            return [result_from(sources[each.index], request, each) for each in wanted]

        async def until_asked_as(together: set[tuple[int, ...]]) -> None:
            """The two connections go at their own pace: until both ask so, and no other way."""
            async with asyncio.timeout(10):
                found: set[tuple[int, ...]] = set()
                while found != together:
                    if not found < together:
                        node.requests.clear()
                    await node.asked(len(node.requests) + 1)
                    found = {
                        tuple(sorted(each.index for each in request.topics[0].partitions))
                        for request in node.requests
                    }

        clock = HandClock()
        rule = QuietRule(after_seconds=10, count_min=2)
        async with following_of(answer, clock=clock, quiet_rule=rule) as (node, fetchers):
            for copy in copies:
                fetchers.follow(copy, 1)
            clock.seconds += 10
            fetchers.follow(copies[2], 1)
            await until_asked_as({(0, 1), (2,)})
            produce(sources[0])
            async with asyncio.timeout(10):
                # Committed: the leader has heard that it arrived.
                while sources[0].high_watermark == 0:
                    await node.asked(len(node.requests) + 1)
            await until_asked_as({(1,), (0, 2)})

    asyncio.run(scenario())


def test_a_position_that_is_not_synced_is_not_told_to_another_leader_either() -> None:
    async def scenario() -> None:
        synced, unsynced = follower(), follower()
        unsynced.topic_partition = TopicPartition("t", 1)
        # From a leader that is gone: it is written and not yet on the disk.
        unsynced.log.append_as_follower(memoryview(batch(1)))
        on_disk: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wait_counted(partition: ReplicatedPartition) -> Awaitable[None] | None:
            return None if partition is synced or on_disk.done() else on_disk

        async with following_of(lambda request: None, wait_counted) as (node, fetchers):
            fetchers.follow(synced, 1)
            fetchers.follow(unsynced, 1)
            await node.asked(1)
            assert [one.index for one in node.requests[0].topics[0].partitions] == [0]
            on_disk.set_result(None)
            await node.asked(2)
            asked = {one.index: one.offset for one in node.requests[1].topics[0].partitions}
            assert asked == {0: 0, 1: 1}

    asyncio.run(scenario())
