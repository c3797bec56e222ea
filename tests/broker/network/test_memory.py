"""Memory for incoming frames: what has arrived counts, and nobody waits for ever."""

from millstream.broker.network.memory import FREE_BYTES_MAX, FrameAccount, RequestMemory

LIMIT = 10 * FREE_BYTES_MAX
LARGE = 4 * FREE_BYTES_MAX


class Frame:
    def __init__(self, memory: RequestMemory, address: str = "a") -> None:
        self.memory = memory
        self.account = FrameAccount(address)
        self.calls = 0

    def grow(self, size_bytes: int) -> bool:
        return self.memory.grow(self.account, size_bytes, self._called)

    def _called(self) -> None:
        self.calls += 1

    def end(self) -> None:
        self.memory.release(self.account)


def test_what_a_frame_holds_is_counted_once_and_given_back() -> None:
    memory = RequestMemory(LIMIT)
    frame = Frame(memory)
    assert frame.grow(LARGE // 2)
    assert frame.grow(LARGE)
    assert frame.grow(LARGE)
    assert memory.held_bytes == LARGE
    frame.end()
    frame.end()
    assert memory.held_bytes == 0


def test_one_address_leaves_half_to_the_others() -> None:
    memory = RequestMemory(LIMIT)
    greedy = [Frame(memory) for _ in range(3)]
    assert greedy[0].grow(LARGE)
    # The first that has to wait is let through, the next is not.
    assert greedy[1].grow(LARGE)
    assert not greedy[2].grow(LARGE)
    assert memory.held_bytes < LIMIT
    assert Frame(memory, "b").grow(FREE_BYTES_MAX + 1)


def test_frames_that_wait_to_be_decoded_keep_the_client_from_sending_more() -> None:
    memory = RequestMemory(LIMIT)
    held = [memory.hold("a", LARGE) for _ in range(2)]
    assert memory.held_bytes == 2 * LARGE
    first, second = Frame(memory), Frame(memory)
    # One that is the first to wait may be completed.
    assert first.grow(LARGE)
    assert not second.grow(LARGE)
    for account in held:
        memory.release(account)
        memory.release(account)
    first.end()
    assert second.calls
    assert second.grow(LARGE)
    assert memory.held_bytes == LARGE


def test_small_frames_never_wait() -> None:
    memory = RequestMemory(LIMIT)
    for _ in range(30):
        assert Frame(memory).grow(FREE_BYTES_MAX)
    assert memory.held_bytes == 30 * FREE_BYTES_MAX


def test_of_many_frames_that_fill_the_memory_one_is_always_completed() -> None:
    memory = RequestMemory(LIMIT)
    frames = [Frame(memory, str(number)) for number in range(8)]
    for frame in frames:
        frame.grow(LARGE // 2)
    done = 0
    while frames:
        able = next(frame for frame in frames if frame.grow(LARGE))
        able.end()
        frames.remove(able)
        done += 1
    assert (done, memory.held_bytes) == (8, 0)


def test_those_that_wait_are_called_when_something_is_given_back() -> None:
    memory = RequestMemory(LIMIT)
    first, second, third = (Frame(memory) for _ in range(3))
    assert first.grow(LARGE)
    assert second.grow(LARGE)
    assert not third.grow(LARGE)
    second.end()
    assert third.calls == 1
    assert third.grow(LARGE)


def test_who_gives_back_nothing_calls_nobody() -> None:
    memory = RequestMemory(LIMIT)
    first, second, third, idle = (Frame(memory) for _ in range(4))
    assert first.grow(LARGE)
    assert second.grow(LARGE)
    assert not third.grow(LARGE)
    for _ in range(3):
        idle.end()
    assert third.calls == 0


def test_only_those_are_called_that_then_have_memory() -> None:
    memory = RequestMemory(LIMIT)
    held = [memory.hold("a", LARGE), memory.hold("b", LARGE)]
    first = Frame(memory, "c")
    assert first.grow(LARGE)
    waiting = [Frame(memory, "d") for _ in range(20)]
    for frame in waiting:
        assert not frame.grow(2 * FREE_BYTES_MAX)
    memory.release(held[0])
    assert [frame.calls for frame in waiting] == [1, *[0] * 19]
    assert memory.held_bytes == LIMIT
    memory.release(held[1])
    # One client may have half of the memory.
    assert [frame.calls for frame in waiting] == [1, 1, *[0] * 18]
    for number, frame in enumerate(waiting):
        assert frame.calls == 1
        # It has its memory already.
        assert frame.grow(2 * FREE_BYTES_MAX)
        assert memory.held_bytes <= LIMIT
        frame.end()
        if number < 18:
            assert waiting[number + 2].calls == 1
    first.end()
    assert memory.held_bytes == 0


def test_clients_that_wait_take_turns() -> None:
    memory = RequestMemory(LIMIT)
    held = [memory.hold("a", LARGE), memory.hold("b", LARGE)]
    first = Frame(memory, "c")
    assert first.grow(LARGE)
    many = [Frame(memory, "many") for _ in range(5)]
    few = Frame(memory, "few")
    for frame in (*many, few):
        assert not frame.grow(2 * FREE_BYTES_MAX)
    for account in held:
        memory.release(account)
    assert [frame.calls for frame in many] == [1, 1, 0, 0, 0]
    assert few.calls == 1
    assert memory.held_bytes == LIMIT


def test_a_frame_that_leaves_the_line_gets_nothing() -> None:
    memory = RequestMemory(LIMIT)
    first, second, gone, last = (Frame(memory) for _ in range(4))
    assert first.grow(LARGE)
    assert second.grow(LARGE)
    assert not gone.grow(LARGE)
    assert not last.grow(LARGE)
    gone.end()
    first.end()
    second.end()
    assert (gone.calls, last.calls) == (0, 1)
    last.end()
    assert memory.held_bytes == 0


def test_what_has_arrived_counts_whether_there_is_room_or_not() -> None:
    memory = RequestMemory(LIMIT)
    arrived, waiting = Frame(memory), Frame(memory)
    first = Frame(memory, "b")
    memory.count(arrived.account, LIMIT)
    assert memory.held_bytes == LIMIT
    assert first.grow(LARGE)
    assert not waiting.grow(LARGE)
    # Dispatched, and another frame begins behind it.
    memory.count(arrived.account, FREE_BYTES_MAX)
    assert waiting.calls == 1
    assert memory.held_bytes == 2 * LARGE + FREE_BYTES_MAX


def test_memory_is_short_when_half_of_it_is_taken() -> None:
    memory = RequestMemory(LIMIT)
    assert not memory.is_short
    Frame(memory, "a").grow(LARGE)
    Frame(memory, "b").grow(LARGE)
    assert memory.is_short
