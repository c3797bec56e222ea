"""One client's connection: bytes to frames, and replies back in request order.

All connections receive into one shared buffer and keep only a partial frame of their own:
a megabyte each would be gigabytes for thousands of clients. A frame that lies whole in
the shared buffer is dispatched from there, so whoever handles it must finish with it
before returning, or copy it; `dispatch` sees to that. The rest of a large frame goes where
its beginning lies: the connection keeps that buffer, and the others get another one.

A reply that must wait for something (a sync, new records, a deadline) keeps its place in
the queue; later requests go on meanwhile, unless the request said that its effect is still
to come (`Reply.gate`): then the next frame waits, or a pipelined write would overtake.
"""

import asyncio
import logging
import socket
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from millstream.broker.network.memory import FREE_BYTES_MAX
from millstream.broker.network.output import OutputQueue, Sent, release_all
from millstream.broker.network.replies import Pending, Pieces, Shortcut, Slot
from millstream.errors import ProtocolError
from millstream.storage import page_cache
from millstream.wire.headers import SIZE_BYTES

if TYPE_CHECKING:
    from millstream.broker.network.host import Host

log = logging.getLogger(__name__)

# A frame with a batch of the default max.message.bytes fits.
SHARED_BUFFER_BYTES: Final = (1 << 20) + (1 << 16)
# Requests of one client whose replies have not left. Kafka's clients keep at most a
# handful; a replaying one may keep more, and is told by TCP to wait.
IN_FLIGHT_MAX: Final = 512
# A client that does not read its replies stops being read itself beyond this.
OUTPUT_BYTES_MAX: Final = 64 << 20
# How long one client's pipelined requests may keep the loop; then others have their turn.
TURN_SECONDS_MAX: Final = 0.005

_GOES_ON_WHEN_WRITABLE: Final = (Sent.SOCKET_FULL, Sent.TURN_OVER)
# A frame that did not come whole gets memory for this much, and then for four times what
# it has, as far as its size goes.
_PARTIAL_BYTES_MIN: Final = 1 << 17

_SIZE = struct.Struct(">i")


class Connection:
    __slots__ = (
        "_gates",
        "_has_writer",
        "_host",
        "_is_receiving",
        "_is_resting",
        "_loop",
        "_output",
        "_partial",
        "_replies",
        "_reserved_bytes",
        "_seat",
        "_waits_for_memory",
        "_wants_write",
        "_warming",
        "client_id",
        "client_software",
        "is_closed",
        "is_reading",
        "last_request",
        "listener",
        "partial_bytes",
        "peer",
        "received_at",
        "sent_at",
        "shortcut",
        "sock",
        "stalled_since",
    )

    def __init__(
        self, host: "Host", sock: socket.socket, *, listener: str, peer: str, now: float
    ) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self.sock = sock
        self.listener = listener
        self.peer = peer
        self.client_id: str | None = None
        self.client_software: str | None = None
        # A handler that expects more of the same leaves here how to answer it quickly, and
        # what the last request was about, to see that it comes again.
        self.shortcut: Shortcut | None = None
        self.last_request: object = None
        # A frame that has begun: its bytes so far, grown as they arrive. Queues are made
        # when first needed: thousands of connections are idle.
        # A large one stays in the buffer it came into, which is lent to us.
        self._partial: bytearray | memoryview | None = None
        self.partial_bytes = 0
        self._replies: deque[Slot] | None = None
        self._output: OutputQueue | None = None
        self._gates = 0
        self._reserved_bytes = 0
        self._waits_for_memory = False
        self._is_receiving = False
        # Has had its turn, and goes on with whole frames in the next one.
        self._is_resting = False
        self._wants_write = False
        self._has_writer = False
        self._warming = False
        self.is_closed = False
        self.is_reading = True
        self.received_at = now
        # When the frame that is still incomplete began, and when output last moved.
        self.stalled_since: float | None = None
        self.sent_at = now
        self._seat = host.receiver.seat(self, sock.fileno())

    # -- receiving ------------------------------------------------------------------

    def on_readable(self) -> None:
        self._take_in(self._receive)

    def on_received(self, data: memoryview) -> None:
        """As `on_readable`, for bytes that `receiving` has taken; nothing had begun before.
        The memory is used again, as the shared buffer is."""
        self._take_in(partial(self._received, data, len(data)))

    def _take_in(self, receive: Callable[[], None]) -> None:
        self.received_at = self._loop.time()
        self._is_receiving = True
        try:
            receive()
            if self._wants_write and not self._has_writer and not self.is_closed:
                self._flush_after_receiving()
        except (BlockingIOError, InterruptedError):
            return
        except ConnectionError:
            self.close()
        except OSError as error:
            self.close(f"receive failed: {error}")
        except ProtocolError as error:
            self.close(str(error))
        except Exception:
            # A bug in one handler must not take the other clients' node down.
            log.exception("closing %s: request failed", self.peer)
            self.close()
        finally:
            self._is_receiving = False

    def _flush_after_receiving(self) -> None:
        """Send the replies to all frames that came together, in one go."""
        # Alone, another turn of the loop would cost a fifth of a small request. Among many,
        # sending last is cheaper: the first send wakes a client, which then wants a core.
        if self._host.is_alone(self):
            self.flush()
        else:
            self._host.flush_with_others(self)

    def _receive(self) -> None:
        if self._partial is not None:
            self._receive_partial()
            return
        buffer = self._host.buffer
        count = self.sock.recv_into(buffer)
        if count == 0:
            self.close()
            return
        self._received(buffer, count)

    def _received(self, buffer: memoryview, count: int) -> None:
        consumed = self._dispatch_frames(buffer, count)
        if consumed < count and not self.is_closed:
            self._begin_partial(buffer[consumed:count])

    def _dispatch_frames(self, data: memoryview, end: int) -> int:
        """Dispatch the whole frames in `data[:end]`; how many bytes they were."""
        position = 0
        turn_ends_at = 0.0
        while end - position >= SIZE_BYTES:
            if self.is_closed or self._is_held_back():
                break
            frame_end = position + SIZE_BYTES + self._frame_size(data, position)
            if frame_end > end:
                break
            # One frame is the common case, and asks no clock.
            if frame_end < end and not turn_ends_at:
                turn_ends_at = self._loop.time() + TURN_SECONDS_MAX
            self._dispatch(data[position + SIZE_BYTES : frame_end])
            position = frame_end
            if position < end and self._loop.time() > turn_ends_at:
                self._rest()
                break
        return position

    def _rest(self) -> None:
        self._is_resting = True
        self._loop.call_soon(self._end_rest)

    def _end_rest(self) -> None:
        self._is_resting = False
        self._resume()

    def _frame_size(self, data: memoryview | bytearray, position: int) -> int:
        size: int = _SIZE.unpack_from(data, position)[0]
        if not 8 <= size <= self._host.frame_bytes_max:
            raise ProtocolError(
                f"frame of {size} bytes (allowed: 8 to {self._host.frame_bytes_max})"
            )
        return size

    def _begin_partial(self, rest: memoryview) -> None:
        self._partial = self._borrow(rest) or bytearray(rest)
        self.partial_bytes = len(rest)
        self.stalled_since = self.received_at
        self._read_if_allowed()

    def _borrow(self, rest: memoryview) -> memoryview | None:
        """The shared buffer with `rest` at its start, if a large frame begins there."""
        if len(rest) < SIZE_BYTES:
            return None
        wanted = SIZE_BYTES + self._frame_size(rest, 0)
        if not max(FREE_BYTES_MAX, len(rest)) < wanted <= len(self._host.buffer):
            return None
        lent = self._host.lend_buffer()
        if lent is not None:
            lent[: len(rest)] = rest
        return lent

    def _receive_partial(self) -> None:
        """Go on with a frame that did not come whole, straight into its own memory."""
        partial = self._partial
        assert partial is not None
        have = self.partial_bytes
        wanted = SIZE_BYTES if have < SIZE_BYTES else SIZE_BYTES + self._frame_size(partial, 0)
        if wanted > FREE_BYTES_MAX and not self._reserved_bytes and not self._reserve(wanted):
            return
        if have < wanted:
            room = wanted
            if isinstance(partial, bytearray):
                # Memory grows with what has arrived, not with what the frame claims.
                room = min(wanted, max(4 * have, _PARTIAL_BYTES_MIN))
                if len(partial) < room:
                    partial.extend(bytes(room - len(partial)))
            with memoryview(partial) as view:
                count = self.sock.recv_into(view[have:room])
            if count == 0:
                self.close()
                return
            self.partial_bytes = have = have + count
        if have >= wanted and have >= SIZE_BYTES:
            self._drain_partial()

    def _reserve(self, size_bytes: int) -> bool:
        if self._host.memory.reserve(size_bytes, self._memory_is_free):
            self._reserved_bytes = size_bytes
            return True
        self._waits_for_memory = True
        self._read_if_allowed()
        return False

    def _memory_is_free(self) -> None:
        self._waits_for_memory = False
        if not self.is_closed:
            self._read_if_allowed()

    def _release_memory(self) -> None:
        if self._reserved_bytes:
            size_bytes, self._reserved_bytes = self._reserved_bytes, 0
            self._host.memory.release(size_bytes)

    def _drain_partial(self) -> None:
        """Dispatch what is whole in our own buffer, keep the rest."""
        partial = self._partial
        assert partial is not None
        with memoryview(partial) as view:
            consumed = self._dispatch_frames(view, self.partial_bytes)
        if self.is_closed:
            return
        if consumed:
            self._release_memory()
        if consumed == self.partial_bytes:
            self._drop_partial()
            self.stalled_since = None
        elif consumed:
            # What is lent holds one frame only. A copy, not a cut: someone may still look at
            # the dispatched part.
            assert isinstance(partial, bytearray)
            self._partial = partial[consumed : self.partial_bytes]
            self.partial_bytes -= consumed
            self.stalled_since = self.received_at
        self._read_if_allowed()

    def _drop_partial(self) -> None:
        if isinstance(self._partial, memoryview):
            self._host.return_buffer(self._partial)
        self._partial = None
        self.partial_bytes = 0

    # -- flow control ---------------------------------------------------------------

    def _is_held_back(self) -> bool:
        # Asked for every frame, and nearly always it is none of these.
        if self._gates or self._is_resting or self._waits_for_memory:
            return True
        if self._replies and len(self._replies) >= IN_FLIGHT_MAX:
            return True
        output = self._output
        return output is not None and output.size_bytes >= OUTPUT_BYTES_MAX

    def _read_if_allowed(self) -> None:
        held_back = self._is_held_back()
        if held_back and self.is_reading:
            self.is_reading = False
            self.stalled_since = None
            self._seat.pause()
        elif not held_back and not self.is_reading:
            self.is_reading = True
            if self._partial is not None:
                self.stalled_since = self._loop.time()
            self._seat.resume()

    def _resume(self) -> None:
        """Something left the queues: go on with frames that had to wait."""
        if self.is_closed or self.is_reading or self._is_held_back():
            return
        try:
            if self._partial is not None:
                self._drain_partial()
        except ProtocolError as error:
            self.close(str(error))
        except Exception:
            log.exception("closing %s: request failed", self.peer)
            self.close()
        if not self.is_closed:
            self._read_if_allowed()

    # -- replying -------------------------------------------------------------------

    def _dispatch(self, frame: memoryview) -> None:
        reply = self._host.dispatch(self, frame)
        if isinstance(reply, Pending):
            slot = Slot(None)
            self._enqueue(slot)
            self._gates += reply.gate
            if isinstance(reply.answer, asyncio.Future):
                reply.answer.add_done_callback(partial(self._take_reply, slot, reply))
            else:
                self._host.spawn(self._await_reply(slot, reply))
        elif self._replies:
            self._enqueue(Slot(reply))
        elif reply:
            self._push(reply)

    def _enqueue(self, slot: Slot) -> None:
        if self._replies is None:
            self._replies = deque()
        self._replies.append(slot)

    async def _await_reply(self, slot: Slot, pending: Pending) -> None:
        try:
            pieces = await pending.answer
        except ProtocolError as error:
            self.close(str(error))
        except Exception:
            log.exception("closing %s: request failed", self.peer)
            self.close()
        else:
            self._settle(slot, pending, pieces)

    def _take_reply(self, slot: Slot, pending: Pending, done: "asyncio.Future[Any]") -> None:
        try:
            pieces = done.result() if pending.finish is None else pending.finish(done)
        except Exception:
            log.exception("closing %s: request failed", self.peer)
            self.close()
        else:
            self._settle(slot, pending, pieces)

    def _settle(self, slot: Slot, pending: Pending, pieces: Pieces) -> None:
        """The reply is there: send it, and those that waited behind it."""
        if self.is_closed:
            release_all(pieces)
            return
        slot.pieces = pieces
        self._gates -= pending.gate
        replies = self._replies
        assert replies is not None
        while replies and replies[0].pieces is not None:
            ready = replies.popleft().pieces
            if ready:
                self._push(ready)
        self._resume()

    def _push(self, pieces: Pieces) -> None:
        if self.is_closed:
            release_all(pieces)
            return
        output = self._output
        if output is None:
            output = self._output = OutputQueue()
        was_empty = not output
        for piece in pieces:
            output.push(piece)
        if was_empty and not self._wants_write:
            self._wants_write = True
            self.sent_at = self.received_at
            if not self._is_receiving:
                # At the end of this turn: replies that became ready together gather.
                self.sent_at = self._loop.time()
                self._host.flush_soon(self)

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it."""
        if self.is_closed or self._warming:
            return
        output = self._output
        assert output is not None
        try:
            sent = output.send(self.sock)
        except OSError as error:
            self.on_send_failed(error)
            return
        self.sent_at = self._loop.time()
        if sent is Sent.EVERYTHING:
            self._wants_write = False
            if self.shortcut is not None:
                self._expect_more(self.shortcut)
        elif sent is Sent.COLD:
            self._warming = True
            self._host.spawn(self._warm())
        wants_writer = sent in _GOES_ON_WHEN_WRITABLE
        if wants_writer != self._has_writer:
            self._watch_writable(wants_writer)
        if not self.is_reading:
            self._resume()

    def _expect_more(self, shortcut: Shortcut) -> None:
        """With nothing under way, the next request may be answered without us."""
        expected = shortcut.expected
        if expected is not None and self.is_reading and self._partial is None and not self._replies:
            self._seat.expect(expected)

    def on_unsent(self, rest: bytes) -> None:
        """The socket did not take all of an answer that was made without us."""
        self._push([rest])

    def on_send_failed(self, error: OSError) -> None:
        self.close(None if isinstance(error, ConnectionError) else f"send failed: {error}")

    def _watch_writable(self, wanted: bool) -> None:
        self._has_writer = wanted
        if wanted:
            self._loop.add_writer(self.sock.fileno(), self.flush)
        else:
            self._loop.remove_writer(self.sock.fileno())

    async def _warm(self) -> None:
        output = self._output
        assert output is not None
        pin = output.pin_cold_window()
        try:
            await self._host.run_blocking(lambda: page_cache.warm(*pin.window))
        except OSError as error:
            self.close(f"log read failed: {error}")
        finally:
            pin.release()
        self._warming = False
        if not self.is_closed:
            output.window_is_warm()
            self.flush()

    @property
    def has_output(self) -> bool:
        return bool(self._output)

    # -- the end --------------------------------------------------------------------

    def close(self, reason: str | None = None) -> None:
        """Close now. With a reason, one line says who and why."""
        if self.is_closed:
            return
        self.is_closed = True
        if reason is not None:
            log.warning("closing %s (client %.60r): %s", self.peer, self.client_id, reason)
        self._seat.close()
        self._loop.remove_writer(self.sock.fileno())
        self.sock.close()
        if self._output is not None:
            self._output.clear()
        for slot in self._replies or ():
            release_all(slot.pieces or ())
        self._replies = None
        self._drop_partial()
        self.shortcut = self.last_request = None
        self._release_memory()
        self._host.forget(self)
