"""Many clients in one turn: what is answered at once, and what is left to the connections."""

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.frames import produce_load
from millstream.broker.network.receiving import COMPILED, Expected, Placed, Receiver
from millstream.errors import KafkaError
from millstream.records.batch import BatchView, split_batches
from millstream.records.checksum import crc32c
from millstream.records.records import read_records
from millstream.records.validation import check_group, check_produced
from millstream.storage.values import BatchGroup
from millstream.wire.cursor import Cursor
from millstream.wire.headers import read_request_header
from millstream.wire.produce import read_produce_request
from millstream.wire.repeated import RepeatedProduce, repeated_produce
from tests.storage.batch_groups import GroupOf
from tests.storage.logs import NOW_MS, batch, make_batch_rules

pytestmark = pytest.mark.skipif(
    COMPILED is None, reason="millstream.broker.network._receiving is not compiled"
)

FRAME_BYTES_MAX = 1 << 20
TOGETHER = 32
GROUP_BYTES_MAX = 8192
MISSES_MAX = 16


def produce_frame(data: bytes, correlation_id: int = 1) -> bytes:
    frame = bytearray(produce_load("topic", [data], acks=1).frames[0])
    struct.pack_into(">i", frame, 8, correlation_id)
    return bytes(frame)


def repeated_of(frame: bytes) -> RepeatedProduce:
    body = memoryview(frame)[4:]
    cursor = Cursor(body)
    header = read_request_header(cursor)
    found = repeated_produce(body, header, read_produce_request(cursor, header.version))
    assert found is not None
    return found


REPEATED = repeated_of(produce_frame(bytes(batch())))
# The partition of all frames here.
INDEX = 0


def records_of(frame: memoryview) -> memoryview | None:
    """The records, if the frame is the known request to the known partition."""
    found = REPEATED.partitions_of(frame)
    if found is None or [index for index, _ in found] != [INDEX]:
        return None
    return found[0][1]


class Partition:
    """Takes groups and counts offsets. Of what is too far ahead, the log looks at each record."""

    def __init__(self) -> None:
        self.groups: list[bytes] = []
        self.next_offset = 100
        self.is_refusing = False
        self.on_append: Callable[[], None] = lambda: None

    def append(self, group: BatchGroup) -> Placed | None:
        self.on_append()
        ahead_ms = group.max_timestamp_ms - NOW_MS
        if self.is_refusing or ahead_ms > make_batch_rules().timestamp_after_max_ms:
            return None
        base_offset = self.next_offset
        self.next_offset += group.last_offset_delta + 1
        data = bytes(group.stamped(base_offset, 7))
        views = list(split_batches(memoryview(data)))
        assert len(views) == len(group)
        assert group.last_offsets(base_offset) == [view.last_offset for view in views]
        sizes = [view.size_bytes for view in views]
        assert group.positions(5) == [5 + sum(sizes[:i]) for i in range(len(sizes))]
        assert (group.size_bytes, group.largest_bytes) == (len(data), max(sizes))
        newest = max(views, key=lambda view: view.max_timestamp_ms)
        # Below zero is no time at all.
        assert group.max_timestamp_ms == max(newest.max_timestamp_ms, -1)
        if group.max_timestamp_ms >= 0:
            assert base_offset + group.max_timestamp_delta == newest.last_offset
        assert group.attributes == max(view.attributes for view in views)
        assert group.producer_id == -1
        self.groups.append(data)
        return base_offset, -1, 50

    def expected(self) -> Expected:
        assert COMPILED is not None
        return COMPILED.Expected(
            REPEATED.before_records(INDEX),
            REPEATED.answer(0, [(INDEX, 0, 0, 0)]),
            REPEATED.answer_offsets_at,
            terms=self,
            append=self.append,
        )


class Client:
    """A socket, and a connection at its other end that notes what it is told."""

    def __init__(
        self, receiver: Receiver, expected: Expected | None = None, name: str = "a"
    ) -> None:
        self.client = name
        self.answered: list[float] = []
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.setblocking(False)
        self.received_at = self.sent_at = 0.0
        self.notes: list[object] = []
        self.is_closed = False
        self.registration = receiver.register(self, self.near.fileno())  # type: ignore[arg-type]
        if expected is not None:
            self.registration.expect(expected)

    def on_readable(self) -> None:
        data = self.near.recv(1 << 20)
        self.notes.append(("readable", data))
        if not data:
            self.close()

    def on_received(self, data: memoryview) -> None:
        self.notes.append(("received", bytes(data)))

    def on_answered(self, now: float) -> None:
        self.answered.append(now)

    def on_unsent(self, rest: bytes) -> None:
        self.notes.append(("unsent", rest))

    def on_send_failed(self, error: OSError) -> None:
        self.notes.append(("failed", type(error)))
        self.close()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.registration.close()
            self.near.close()

    def answers(self) -> bytes:
        try:
            return self.far.recv(1 << 16)
        except BlockingIOError:
            return b""


@dataclass
class Turns:
    """A receiver whose turns are made by the test."""

    loop: asyncio.AbstractEventLoop
    receiver: Receiver
    clients: list[Client] = field(default_factory=list)

    def client(self, expected: Expected | None = None, name: str = "a") -> Client:
        self.clients.append(Client(self.receiver, expected, name))
        return self.clients[-1]

    def turn(self) -> None:
        self.receiver.turn()  # type: ignore[attr-defined]


@pytest.fixture
def turns() -> Iterator[Turns]:
    yield from _turns()


def _turns() -> Iterator[Turns]:
    assert COMPILED is not None
    loop = asyncio.new_event_loop()
    made = Turns(loop, COMPILED.Receiver(loop, FRAME_BYTES_MAX))
    try:
        yield made
    finally:
        for client in made.clients:
            client.close()
            client.far.close()
        made.receiver.close()
        loop.close()


def answer(correlation_id: int, base_offset: int) -> bytes:
    return REPEATED.answer(correlation_id, [(INDEX, base_offset, -1, 50)])


def test_clients_of_one_partition_are_written_together(turns: Turns) -> None:
    partition = Partition()
    clients = [turns.client(partition.expected()) for _ in range(5)]
    for number, client in enumerate(clients):
        data = bytes(batch(number + 1, timestamp_ms=NOW_MS + number % 3))
        client.far.send(produce_frame(data, correlation_id=number - 2))
    turns.turn()
    assert len(partition.groups) == 1
    at = 100
    for number, client in enumerate(clients):
        assert client.answers() == answer(number - 2, at)
        assert client.notes == []
        assert client.received_at == client.sent_at > 0
        at += number + 1


@pytest.mark.parametrize(
    ("names", "first", "second", "later"),
    [
        ("aaaa", [1, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]),
        ("aabbc", [1, 0, 1, 0, 0], [1, 0, 1, 0, 0], [1, 0, 1, 0, 0]),
        ("a", [1], [0], [1]),
    ],
)
def test_a_turn_tells_of_two_of_the_clients_that_it_has_answered(
    turns: Turns,
    monkeypatch: pytest.MonkeyPatch,
    names: str,
    first: list[int],
    second: list[int],
    later: list[int],
) -> None:
    partition = Partition()
    # Equal, and another object for each connection.
    clients = [turns.client(partition.expected(), f"{name} at home") for name in names]
    for now, told in ((7.0, first), (7.001, second), (7.02, later)):
        monkeypatch.setattr(turns.loop, "time", lambda now=now: now)
        for client in clients:
            client.answered.clear()
            client.far.send(produce_frame(bytes(batch())))
        turns.turn()
        assert all(client.answers() for client in clients)
        assert [client.answered for client in clients] == [[now] * count for count in told]


def test_a_turn_without_answers_tells_of_nobody(turns: Turns) -> None:
    client = turns.client(Partition().expected())
    client.far.send(b"something else")
    turns.turn()
    assert client.answered == []


def test_partitions_have_runs_of_their_own(turns: Turns) -> None:
    one, other = Partition(), Partition()
    clients = [turns.client((one, other)[i % 2].expected()) for i in range(6)]
    for client in clients:
        client.far.send(produce_frame(bytes(batch())))
    turns.turn()
    assert [len(one.groups), len(other.groups)] == [1, 1]
    offsets = [
        struct.unpack_from(">q", c.answers(), REPEATED.answer_offsets_at)[0] for c in clients
    ]
    assert offsets == [100, 100, 101, 101, 102, 102]


@pytest.mark.parametrize(("count", "turns_needed"), [(TOGETHER + 3, 1), (3 * TOGETHER, 2)])
def test_a_turn_takes_some_and_the_next_one_the_rest(
    turns: Turns, count: int, turns_needed: int
) -> None:
    partition = Partition()
    clients = [turns.client(partition.expected()) for _ in range(count)]
    for client in clients:
        client.far.send(produce_frame(bytes(batch())))
    for _ in range(turns_needed):
        assert not all(partition.groups and client.sent_at for client in clients)
        turns.turn()
    assert partition.next_offset == 100 + count
    assert all(client.answers() for client in clients)


def test_a_run_is_no_longer_than_its_memory(turns: Turns) -> None:
    partition = Partition()
    data = bytes(batch(value=bytes(3000)))
    clients = [turns.client(partition.expected()) for _ in range(5)]
    for client in clients:
        client.far.send(produce_frame(data))
    turns.turn()
    assert [len(group) for group in partition.groups] == [2 * len(data), 2 * len(data), len(data)]
    assert all(client.answers() for client in clients)


def test_larger_batches_are_for_the_connection(turns: Turns) -> None:
    partition = Partition()
    client = turns.client(partition.expected())
    frame = produce_frame(bytes(batch(value=bytes(GROUP_BYTES_MAX))))
    client.far.send(frame)
    turns.turn()
    assert client.notes == [("received", frame)]


def test_a_frame_above_the_limit_is_for_the_connection() -> None:
    assert COMPILED is not None
    loop = asyncio.new_event_loop()
    frame = produce_frame(bytes(batch()))
    partition = Partition()
    for limit, is_taken in ((len(frame) - 4, True), (len(frame) - 5, False)):
        receiver = COMPILED.Receiver(loop, limit)
        client = Client(receiver, partition.expected())
        client.far.send(frame)
        receiver.turn()  # type: ignore[attr-defined]
        assert bool(client.answers()) is is_taken
        client.close()
        client.far.close()
        receiver.close()
    loop.close()


def test_what_is_not_whole_or_too_much_is_for_the_connection(turns: Turns) -> None:
    partition = Partition()
    frame = produce_frame(bytes(batch()))
    for data in (*(frame[:n] for n in range(1, len(frame))), frame + b"\0", frame + frame):
        client = turns.client(partition.expected())
        client.far.send(data)
        turns.turn()
        assert client.notes == [("received", data)]
        client.close()
    assert partition.groups == []


def test_after_something_else_nothing_is_expected(turns: Turns) -> None:
    partition = Partition()
    expected = partition.expected()
    client = turns.client(expected)
    for data in (b"other", produce_frame(bytes(batch()))):
        client.far.send(data)
        turns.turn()
    assert client.notes == [("received", b"other"), ("readable", produce_frame(bytes(batch())))]
    client.registration.expect(expected)
    client.far.send(produce_frame(bytes(batch())))
    turns.turn()
    assert client.answers() == answer(1, 100)


def test_a_client_that_always_sends_something_else_is_left_alone(turns: Turns) -> None:
    expected = Partition().expected()
    client = turns.client()
    for _ in range(MISSES_MAX + 1):
        client.registration.expect(expected)
        client.far.send(b"other")
        turns.turn()
    assert [note[0] for note in client.notes] == [  # type: ignore[index]
        *["received"] * MISSES_MAX,
        "readable",
    ]


@given(st.data())
def test_only_what_would_be_accepted_anyway_is_written(data: st.DataObject) -> None:
    frame = bytearray(produce_frame(bytes(batch(data.draw(st.integers(1, 3))))))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(4, len(frame) - 1))
        frame[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        # With a checksum that fits, so that what is behind it counts.
        view = memoryview(frame)
        found = records_of(view[4:])
        if found is not None and len(found) >= 61:
            struct.pack_into(">I", found, 17, crc32c(found[21:]))
    for turns in _turns():
        partition = Partition()
        client = turns.client(partition.expected())
        client.far.send(bytes(frame))
        turns.turn()
        records = records_of(memoryview(frame)[4:])
        if partition.groups:
            assert records is not None
            check_produced(BatchView(records), make_batch_rules(), NOW_MS)
            assert bytes(records)[12 + 4 :] == partition.groups[0][12 + 4 :]
        else:
            assert client.notes == [("received", bytes(frame))]
            assert records is None or not _is_plain(records)


def _is_plain(records: memoryview) -> bool:
    content = bytearray(records)
    try:
        view = BatchView(memoryview(content))
        check_produced(view, make_batch_rules(), NOW_MS)
        check_group(GroupOf(bytearray(records)), make_batch_rules(), NOW_MS)
        times = [each.timestamp_ms for each in read_records(view, limit_bytes=1 << 20)]
    except (KafkaError, ValueError, struct.error):
        return False
    # Only the batch's timestamp is compared with the limits of the topic, so it has to be right.
    if content != records or any(each < -1 for each in times):
        return False
    return view.size_bytes == len(records) and view.producer_id < 0 and 0 <= view.attributes <= 4


@pytest.mark.parametrize(("at", "time_ms"), [(27, NOW_MS * 1000), (35, NOW_MS + 1)])
def test_records_that_are_newer_or_older_than_their_batch_says_are_looked_at_elsewhere(
    at: int, time_ms: int, turns: Turns
) -> None:
    partition = Partition()
    client = turns.client(partition.expected())
    data = bytearray(batch())
    struct.pack_into(">q", data, at, time_ms)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    client.far.send(produce_frame(bytes(data)))
    turns.turn()
    assert partition.groups == []
    assert client.notes == [("received", produce_frame(bytes(data)))]


def test_requests_that_could_not_be_written_together_are_handled_by_themselves(
    turns: Turns,
) -> None:
    partition = Partition()
    partition.is_refusing = True
    clients = [turns.client(partition.expected()) for _ in range(3)]
    for number, client in enumerate(clients):
        client.far.send(produce_frame(bytes(batch()), number))
    turns.turn()
    for number, client in enumerate(clients):
        assert client.notes == [("received", produce_frame(bytes(batch()), number))]
        assert client.answers() == b""


def test_a_bug_closes_those_it_hits(turns: Turns, caplog: pytest.LogCaptureFixture) -> None:
    broken, partition = Partition(), Partition()

    def fail() -> None:
        raise RuntimeError("a bug")

    broken.on_append = fail
    hit, fine = turns.client(broken.expected()), turns.client(partition.expected())
    for client in (hit, fine):
        client.far.send(produce_frame(bytes(batch())))
    turns.turn()
    assert (hit.is_closed, fine.is_closed) == (True, False)
    assert fine.answers() == answer(1, 100)
    assert "a bug" in caplog.text


def test_an_answer_that_the_socket_does_not_take_is_for_the_connection(turns: Turns) -> None:
    partition = Partition()
    client = turns.client(partition.expected())
    with pytest.raises(BlockingIOError):
        while True:
            client.near.send(bytes(1 << 12))
    with pytest.raises(BlockingIOError):
        while True:
            client.near.send(b"\0")
    client.far.send(produce_frame(bytes(batch()), 9))
    turns.turn()
    assert client.notes == [("unsent", answer(9, 100))]
    # And the next one, which has to come after it.
    client.far.send(produce_frame(bytes(batch()), 10))
    turns.turn()
    assert client.notes[1] == ("readable", produce_frame(bytes(batch()), 10))


def test_a_client_that_went_away_after_its_request(turns: Turns) -> None:
    partition = Partition()
    gone, half_closed = (turns.client(partition.expected()) for _ in range(2))
    gone.far.send(produce_frame(bytes(batch())))
    gone.far.close()
    half_closed.far.send(produce_frame(bytes(batch())))
    half_closed.far.shutdown(socket.SHUT_WR)
    turns.turn()
    # Both were written; who only stopped sending gets the answer.
    assert partition.next_offset == 102
    assert gone.notes == [("failed", BrokenPipeError)]
    assert len(half_closed.answers()) == len(answer(1, 0))
    turns.turn()
    assert half_closed.notes == [("readable", b"")]


def test_many_that_close_at_once(turns: Turns) -> None:
    partition = Partition()
    clients = [turns.client(partition.expected()) for _ in range(2 * TOGETHER)]
    staying = turns.client(partition.expected())
    for client in clients:
        client.far.close()
    staying.far.send(produce_frame(bytes(batch())))
    for _ in range(2):
        turns.turn()
    assert all(client.is_closed for client in clients)
    assert staying.answers() == answer(1, 100)


def test_the_number_of_a_closed_descriptor_gets_no_answer(turns: Turns) -> None:
    partition = Partition()
    clients = [turns.client(partition.expected()) for _ in range(3)]
    for client in clients:
        client.far.send(produce_frame(bytes(batch())))
    strangers: list[socket.socket] = []

    def close_one() -> None:
        number = clients[1].near.fileno()
        clients[1].close()
        strangers.extend(socket.socketpair())
        # The lowest free number is given out.
        assert number in [sock.fileno() for sock in strangers]

    partition.on_append = close_one
    turns.turn()
    assert [client.answers() for client in clients] == [answer(1, 100), b"", answer(1, 102)]
    for sock in strangers:
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(100)
    for sock in strangers:
        sock.close()


def test_who_is_closed_by_another_is_not_called(turns: Turns) -> None:
    partition = Partition()
    first = turns.client(partition.expected())
    others = [turns.client(), turns.client(Partition().expected())]
    first.far.send(produce_frame(bytes(batch())))
    others[0].far.send(b"one")
    others[1].far.send(b"two")

    def close_others() -> None:
        for client in others:
            client.close()

    partition.on_append = close_others
    turns.turn()
    assert [client.notes for client in others] == [[], []]
    assert first.answers() == answer(1, 100)


def test_who_is_paused_is_not_received_from(turns: Turns) -> None:
    partition = Partition()
    client = turns.client(partition.expected())
    client.registration.pause()
    client.registration.pause()
    client.far.send(produce_frame(bytes(batch())))
    turns.turn()
    assert (client.notes, partition.groups) == ([], [])
    client.registration.resume()
    turns.turn()
    assert client.notes == [("readable", produce_frame(bytes(batch())))]


def test_nothing_happens_after_the_end(turns: Turns) -> None:
    client = turns.client(Partition().expected())
    client.far.send(produce_frame(bytes(batch())))
    turns.receiver.close()
    turns.turn()
    assert client.notes == []


def test_an_answer_without_room_for_numbers_is_refused() -> None:
    assert COMPILED is not None
    for before, answered, at in (
        (b"", bytes(64), 20),
        (bytes(20), bytes(40), 20),
        (bytes(20), bytes(600), 20),
    ):
        with pytest.raises(ValueError):
            COMPILED.Expected(before, answered, at, terms=None, append=lambda group: None)
