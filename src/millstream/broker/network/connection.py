"""One client's connection: bytes to frames, and replies back in request order.

All connections receive into one shared buffer, and each keeps only its own partial frame:
a megabyte each would be gigabytes for thousands of clients. A frame that is complete in the
shared buffer is dispatched from there, so its handler must finish with it before it
returns, or copy it; `dispatch` ensures that. The rest of a large frame goes where its
beginning is: the connection keeps that buffer, and the others get another one.

A reply that must wait for something (a sync, new records, a deadline) keeps its place in
the queue. Later requests are served in the meantime, unless the effect of the request is
still to come (`Pending.gate`): then the next frame waits, or a pipelined write would overtake.
"""

import asyncio
import fcntl
import logging
import select
import socket
import struct
import termios
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, Final, Protocol

from millstream.broker.network.client_turns import ClientTurns
from millstream.broker.network.host import Host, Socket
from millstream.broker.network.memory import FREE_BYTES_MAX
from millstream.broker.network.output import PlainOutput, release_all
from millstream.broker.network.partial_frame import PartialFrame, frame_size
from millstream.broker.network.replies import Pending, Pieces, ReplyQueue, Shortcut, Slot
from millstream.broker.network.sender import Sender
from millstream.errors import ProtocolError
from millstream.model import ANONYMOUS, Principal
from millstream.wire.headers import SIZE_BYTES

log = logging.getLogger(__name__)

# A frame with a batch of the default max.message.bytes fits.
SHARED_BUFFER_BYTES: Final = (1 << 20) + (1 << 16)
# Requests of one client whose replies are not sent yet. Kafka's clients keep at most a
# handful in flight; a client that replays may keep more, and TCP makes it wait.
IN_FLIGHT_MAX: Final = 512
# Of those, requests that wait for news (`begin_wait`). Each append looks at all that wait at its
# partition. Kafka serves one request of a connection at a time, and consumers send no more.
WAITS_MAX: Final = 16
# Beyond this, we stop reading from a client that does not read its replies.
OUTPUT_BYTES_MAX: Final = 64 << 20
# The same for replies in memory, without ranges of files, and with those that wait for an earlier
# one: small requests may have large replies, and one client many connections.
OUTPUT_MEMORY_MAX: Final = 256 << 10
# The other side sends nothing more; where the system cannot say that, it tells of errors.
_HUNG_UP: Final = getattr(select, "POLLRDHUP", 0)
# How often it is looked whether a client that is not read has left, while its requests wait.
_LOOK_SECONDS: Final = 1.0
# How long a client may take to read the reply after which its connection is closed.
_LAST_REPLY_SECONDS_MAX: Final = 1.0
_INT: Final = struct.Struct("i")


class ClientGone(Exception):
    """Raised by work for a client that has left."""


def kept_frame(frame: memoryview) -> memoryview:
    """The frame, in memory that the next frame does not overwrite.

    A small frame lies in the shared buffer and is copied. A frame larger than that buffer already
    has separate memory, and copying it would take milliseconds."""
    return frame if len(frame) > SHARED_BUFFER_BYTES else memoryview(bytes(frame))


def kept_writable_frame(frame: memoryview) -> memoryview:
    """As `kept_frame`, for records that are stamped where they are."""
    return frame if len(frame) > SHARED_BUFFER_BYTES else memoryview(bytearray(frame))


Answer = Callable[["Connection", memoryview], Pieces | Pending]


class Wait(Protocol):
    """Something that a request waits for, longer than its client may stay."""

    def wake(self) -> None:
        """End the wait now; what has waited goes on later."""
        ...


class ConnectionHost(Host, Protocol):
    @property
    def turns(self) -> ClientTurns: ...
    def dispatch(self, connection: "Connection", frame: memoryview) -> Pieces | Pending: ...
    def forget(self, connection: "Connection") -> None: ...
    def is_alone(self, connection: "Connection") -> bool:
        """Has no other connection received anything just now?"""
        ...

    def flush_soon(self, connection: "Connection") -> None:
        """Have `flush` called in the next iteration of the loop."""
        ...

    def flush_with_others(self, connection: "Connection") -> None:
        """Have `flush` called, now or in the next iteration: for a connection done receiving."""
        ...


class Connection:
    """
    | state     | reads | `_partial` | `_replies` | ends when                                |
    |-----------|-------|------------|------------|------------------------------------------|
    | idle      | yes   | none       | none       | bytes arrive                             |
    | receiving | yes   | some       | any        | the frame is complete                    |
    | waiting   | yes   | any        | some       | the first reply in line is ready         |
    | held back | no    | any        | any        | a gate opens, memory is free, the other  |
    |           |       |            |            | connections had a turn, or output drains |
    | closed    | no    | none       | none       | never                                    |

    Queues are created when first needed: thousands of connections are idle.
    """

    __slots__ = (
        "_host",
        "_is_looking",
        "_is_receiving",
        "_loop",
        "_partial",
        "_registration",
        "_replies",
        "_rests",
        "_sender",
        "_waits",
        "_wake_bytes",
        "address",
        "answer",
        "challenge",
        "client",
        "client_id",
        "client_software",
        "closes_when_sent",
        "frame_bytes_max",
        "is_closed",
        "is_reading",
        "last_request",
        "listener",
        "on_closed",
        "peer",
        "principal",
        "proved_node_id",
        "received_at",
        "sent_at",
        "session",
        "shortcut",
        "sock",
        "window_began_at",
        "window_bytes",
    )

    def __init__(
        self, host: ConnectionHost, sock: Socket, *, listener: str, peer: str, now: float
    ) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        self.sock = sock
        self.listener = listener
        self.peer = peer
        # The peer's address, without the port.
        self.address = peer.rpartition(":")[0]
        # What answers the frames, and the largest that is taken: less before a client has proved
        # who it is (`restrict`).
        self.answer: Answer = host.dispatch
        self.frame_bytes_max = host.frame_bytes_max
        # Who is at the other end, as far as it has proved that (`identify`).
        self.principal = ANONYMOUS
        # All connections of one client share its turns and its memory.
        self.client = self.address
        # How it has proved that, for those who check; None on listeners where nothing is proved.
        self.session: object = None
        # Why the connection is closed once everything is sent; None if it is not.
        self.closes_when_sent: str | None = None
        self.client_id: str | None = None
        self.client_software: str | None = None
        # The node of the cluster that is known to be at the other end; -1 for everybody else.
        self.proved_node_id = -1
        # What a node has to answer to be known; None where nothing was asked.
        self.challenge: bytes | None = None
        # A handler that expects more of the same request leaves a fast way to answer it here, and
        # what the last request was about, to recognise a repetition.
        self.shortcut: Shortcut | None = None
        self.last_request: object = None
        self._partial: PartialFrame | None = None
        # What the poller waits for: more than one byte only while a frame is incomplete.
        self._wake_bytes = 1
        self._replies: ReplyQueue | None = None
        self._sender: Sender | None = None
        self._waits: set[Wait] | None = None
        self._is_receiving = False
        # Will it soon be looked whether the client has left?
        self._is_looking = False
        # Reasons to rest: it has had its turn, or has exceeded a quota.
        self._rests = 0
        self.is_closed = False
        # Called once, when the connection is closed.
        self.on_closed: Callable[[], None] | None = None
        # Does the receiver watch the socket? Never while `_is_held_back`.
        self.is_reading = True
        self.received_at = now
        # How fast the incomplete frame arrives (`deadlines`), and when output last made progress.
        self.window_began_at: float | None = None
        self.window_bytes = 0
        self.sent_at = now
        self._registration = host.receiver.register(self, sock.fileno())

    # -- receiving ------------------------------------------------------------------

    def on_readable(self) -> None:
        self._take_in(self._receive)

    def on_received(self, data: memoryview) -> None:
        """As `on_readable`, for bytes that `receiving` has read; no frame was incomplete before.
        The memory is reused, like the shared buffer."""
        self._take_in(partial(self._received, data, len(data)))

    def _take_in(self, receive: Callable[[], None]) -> None:
        self.received_at = now = self._loop.time()
        self._host.turns.hear(self.client, now)
        self._is_receiving = True
        try:
            receive()
            sender = self._sender
            if sender is not None and sender.is_due and not self.is_closed:
                # The flush may let in frames that had to wait, whose replies need another.
                self._is_receiving = False
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
            # A bug in one handler must not take down the node for other clients.
            log.exception("closing %s: request failed", self.peer)
            self.close()
        finally:
            self._is_receiving = False

    def _flush_after_receiving(self) -> None:
        """Send the replies to all frames that arrived together, in one call."""
        # If it is alone, another loop iteration would cost a fifth of a small request. Among many,
        # sending last is cheaper: the first send wakes a client, which then needs a core.
        if self._host.is_alone(self):
            self.flush()
        else:
            self._host.flush_with_others(self)

    def _receive(self) -> None:
        if self._partial is not None:
            self._receive_partial(self._partial)
            return
        buffer = self._host.buffer
        if self._host.memory.is_short:
            # What turns out to be the beginning of a frame is held, whether there is room or not.
            buffer = buffer[:FREE_BYTES_MAX]
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
        """Dispatch the complete frames in `data[:end]`; return how many bytes they were."""
        position = 0
        turn_ends_at = 0.0
        while end - position >= SIZE_BYTES:
            if self.is_closed or self._is_held_back():
                break
            size = frame_size(data, position, self.frame_bytes_max)
            frame_end = position + SIZE_BYTES + size
            if frame_end > end:
                break
            # One frame is the common case, and reads no clock.
            if frame_end < end and not turn_ends_at:
                if self._host.turns.is_over(self.client):
                    self._rest()
                    break
                # Not by the loop's time, which counts milliseconds.
                turn_ends_at = perf_counter() + self._host.turns.turn_seconds()
            self._dispatch(data[position + SIZE_BYTES : frame_end])
            position = frame_end
            if position < end and perf_counter() > turn_ends_at:
                self._rest()
                break
        return position

    def mute(self, seconds: float) -> None:
        """Read nothing for this long. Replies still leave."""
        if not self.is_closed:
            self._rests += 1
            self._loop.call_later(seconds, self._end_rest)
            self._read_if_allowed()

    def _end_rest(self) -> None:
        self._rests -= 1
        self._resume()

    def _rest(self) -> None:
        self._rests += 1
        self._host.turns.rest(self.client, self._end_rest)

    def _begin_partial(self, rest: memoryview) -> None:
        self._partial = PartialFrame(
            self._host, rest, self.client, frame_bytes_max=self.frame_bytes_max
        )
        self._begin_window(self.received_at)
        self._wake_for(self._partial.wake_bytes)
        self._read_if_allowed()

    def _begin_window(self, now: float, have: int = 0) -> None:
        self.window_began_at, self.window_bytes = now, have

    def _wake_for(self, count: int) -> None:
        """Have the poller report what arrives once it is this much, or the end of the stream.

        A client that sends a large frame in small pieces would otherwise cost a turn of the loop
        for each of them.
        """
        if count != self._wake_bytes:
            self._wake_bytes = count
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def _receive_partial(self, partial_frame: PartialFrame) -> None:
        """Continue a partial frame, straight into its own memory."""
        if not partial_frame.grow(self._memory_is_free):
            self._read_if_allowed()
        elif not partial_frame.receive(self.sock):
            self.close()
        else:
            self._wake_for(partial_frame.wake_bytes)
            if partial_frame.is_whole:
                self._drain_partial(partial_frame)

    def _memory_is_free(self) -> None:
        if self._partial is not None:
            self._partial.waits_for_memory = False
        if not self.is_closed:
            self._read_if_allowed()

    def _drain_partial(self, partial_frame: PartialFrame) -> None:
        """Dispatch what is complete in its own memory, keep the rest."""
        with partial_frame.view as view:
            consumed = self._dispatch_frames(view, partial_frame.have)
        if self.is_closed:
            return
        if consumed == partial_frame.have:
            self._drop_partial()
        elif consumed:
            partial_frame.cut(consumed)
            self._begin_window(self.received_at)
            self._wake_for(partial_frame.wake_bytes)
        self._read_if_allowed()

    def _drop_partial(self) -> None:
        self.window_began_at = None
        if self._partial is not None:
            partial_frame, self._partial = self._partial, None
            partial_frame.drop()

    def hold_memory(self, size_bytes: int) -> Callable[[], None]:
        """Count a frame that waits, decoded or not, as if it were still being received: a client
        with many connections would fill the memory with such frames. Returns what ends that."""
        memory = self._host.memory
        return partial(memory.release, memory.hold(self.client, size_bytes))

    @property
    def partial_bytes(self) -> int:
        """How many bytes of an incomplete frame have arrived."""
        return 0 if self._partial is None else self._partial.have

    @property
    def arrived_bytes(self) -> int:
        """As `partial_bytes`, with what waits in the socket: the poller reports a large frame only
        from time to time."""
        waiting = fcntl.ioctl(self.sock.fileno(), termios.FIONREAD, bytes(_INT.size))
        return self.partial_bytes + int(_INT.unpack(waiting)[0])

    def is_abandoned(self) -> bool:
        """Has the client left? Asks the socket: the end is not seen while nothing is read."""
        if self.is_closed:
            return True
        poller = select.poll()
        poller.register(self.sock, _HUNG_UP)
        return bool(poller.poll(0))

    # -- requests that wait -----------------------------------------------------------

    def begin_wait(self, wait: Wait) -> None:
        """Wake it when the client leaves, or now if it has left. `end_wait` has to follow."""
        if self.is_closed:
            wait.wake()
            return
        if self._waits is None:
            self._waits = {wait}
        else:
            self._waits.add(wait)
        if not self.is_reading:
            self._look_soon()

    def end_wait(self, wait: Wait) -> None:
        if self._waits is not None:
            self._waits.discard(wait)

    def _look_soon(self) -> None:
        """While nothing is read, nobody reports that the client has left."""
        if not self._is_looking:
            self._is_looking = True
            self._loop.call_later(_LOOK_SECONDS, self._close_if_abandoned)

    def _close_if_abandoned(self) -> None:
        self._is_looking = False
        if self.is_closed or self.is_reading or not self._waits:
            return
        if self.is_abandoned():
            self.close()
        else:
            self._look_soon()

    # -- what a client may send --------------------------------------------------------

    def identify(self, principal: Principal) -> None:
        """It has proved who it is, and shares nothing with others at its address any more."""
        self.principal = principal
        if principal != ANONYMOUS:
            self.client = f"{principal} at {self.address}"

    def restrict(self, answer: "Answer", *, frame_bytes_max: int) -> None:
        """Every frame goes to `answer` from now on, also one that was sent before."""
        self.answer = answer
        self._allow_frames(frame_bytes_max)
        self.shortcut = self.last_request = None
        # The descriptor of a closed connection may be another's by now.
        if self.is_reading and not self.is_closed:
            # The receiver may expect a request that it would answer by itself.
            self._registration.pause()
            self._registration.resume()

    def lift_restriction(self) -> None:
        self.answer = self._host.dispatch
        self._allow_frames(self._host.frame_bytes_max)

    def _allow_frames(self, bytes_max: int) -> None:
        self.frame_bytes_max = bytes_max
        if self._partial is not None:
            self._partial.frame_bytes_max = bytes_max

    def close_when_sent(self, reason: str) -> None:
        """Close as soon as the replies are sent, or a moment later if they are not read."""
        if self.is_closed:
            return
        self.restrict(_refuse, frame_bytes_max=self.frame_bytes_max)
        self.closes_when_sent = reason
        self._loop.call_later(_LAST_REPLY_SECONDS_MAX, self.close, reason)

    # -- flow control ---------------------------------------------------------------

    def _is_held_back(self) -> bool:
        # Checked for every frame, and nearly always false.
        if self._rests or (self._partial is not None and self._partial.waits_for_memory):
            return True
        replies = self._replies
        memory_bytes = 0
        if replies is not None:
            if replies.gates or len(replies) >= IN_FLIGHT_MAX:
                return True
            memory_bytes = replies.memory_bytes
        waits = self._waits
        if waits and len(waits) >= WAITS_MAX:
            return True
        sender = self._sender
        if sender is None:
            return memory_bytes >= OUTPUT_MEMORY_MAX
        output = sender.output
        memory_bytes += output.memory_bytes
        return memory_bytes >= OUTPUT_MEMORY_MAX or output.size_bytes >= OUTPUT_BYTES_MAX

    def _read_if_allowed(self) -> None:
        if self._is_held_back():
            # Of a frame that has begun since it was held back, too.
            self.window_began_at = None
            if self.is_reading:
                self.is_reading = False
                self._registration.pause()
                if self._waits:
                    self._look_soon()
        elif not self.is_reading:
            self.is_reading = True
            if self._partial is not None:
                self._begin_window(self._loop.time(), self._partial.have)
            self._registration.resume()

    def _resume(self) -> None:
        """Something left the queues: continue with frames that had to wait."""
        if self.is_closed or self.is_reading or self._is_held_back():
            return
        try:
            if self._partial is not None:
                self._drain_partial(self._partial)
        except ProtocolError as error:
            self.close(str(error))
        except Exception:
            log.exception("closing %s: request failed", self.peer)
            self.close()
        if not self.is_closed:
            self._read_if_allowed()

    # -- replying -------------------------------------------------------------------

    def _dispatch(self, frame: memoryview) -> None:
        reply = self.answer(self, frame)
        if isinstance(reply, Pending):
            if self._replies is None:
                self._replies = ReplyQueue()
            slot = self._replies.add(None, gate=reply.gate)
            if isinstance(reply.answer, asyncio.Future):
                reply.answer.add_done_callback(partial(self._take_reply, slot, reply))
            else:
                self._host.spawn(self._await_reply(slot, reply))
        elif self._replies:
            self._replies.add(reply)
        elif reply:
            self._push(reply)

    async def _await_reply(self, slot: Slot, pending: Pending) -> None:
        try:
            pieces = await pending.answer
        except ProtocolError as error:
            self.close(str(error))
        except ClientGone:
            self.close()
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
        """The reply is ready: send it, and those that waited behind it."""
        if self.is_closed:
            release_all(pieces)
            return
        assert self._replies is not None
        for ready in self._replies.settle(slot, pieces, gate=pending.gate):
            self._push(ready)
        self._resume()

    def _push(self, pieces: Pieces) -> None:
        if self.is_closed:
            release_all(pieces)
            return
        sender = self._sender
        if sender is None:
            sender = self._sender = self._new_sender()
        if sender.push(pieces):
            self.sent_at = self.received_at
            if not self._is_receiving:
                # At the end of this iteration, to join replies that became ready together.
                self.sent_at = self._loop.time()
                self._host.flush_soon(self)

    def _new_sender(self) -> Sender:
        assert isinstance(self.sock, socket.socket)
        return Sender(self, self._host, self.sock, PlainOutput(self.sock))

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it."""
        if self.is_closed:
            return
        assert self._sender is not None
        if self._sender.flush():
            self.sent_at = self._loop.time()
            if not self.is_reading:
                self._resume()

    def on_sent_everything(self) -> None:
        """With nothing in flight, the receiver may answer the next request without us."""
        if self.shortcut is None:
            if self.closes_when_sent is not None:
                self.close(self.closes_when_sent)
            return
        expected = self.shortcut.expected
        if expected is not None and self.is_reading and self._partial is None and not self._replies:
            self._registration.expect(expected)

    def on_answered(self, now: float) -> None:
        """The receiver has answered a request without us, and perhaps more of this client."""
        self._host.turns.hear(self.client, now)

    def on_unsent(self, rest: bytes) -> None:
        """The socket did not take all of a reply that the receiver sent without us."""
        self._push([rest])

    def on_send_failed(self, error: OSError) -> None:
        self.close(None if isinstance(error, ConnectionError) else f"send failed: {error}")

    @property
    def has_output(self) -> bool:
        return self._sender is not None and bool(self._sender.output)

    # -- the end --------------------------------------------------------------------

    def close(self, reason: str | None = None) -> None:
        """Close now. With a reason, log the peer and the reason."""
        if self.is_closed:
            return
        self.is_closed = True
        if reason is not None:
            log.warning("closing %s (client %.60r): %s", self.peer, self.client_id, reason)
        self._registration.close()
        if self._sender is not None:
            self._sender.close()
            # It refers to us: without a cycle, a closed connection is freed at once, and not only
            # when all garbage is collected.
            self._sender = None
        self.sock.close()
        if self._replies is not None:
            self._replies.clear()
        waits, self._waits = self._waits, None
        for wait in waits or ():
            wait.wake()
        self._drop_partial()
        self.shortcut = self.last_request = None
        self._host.forget(self)
        if self.on_closed is not None:
            self.on_closed()


def _refuse(connection: Connection, frame: memoryview) -> Pieces | Pending:
    raise ProtocolError(connection.closes_when_sent or "the connection is closing")
