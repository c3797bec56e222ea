# cython: language_level=3, boundscheck=False, wraparound=False
"""Receiving on many connections in one turn of the loop, compiled; see `receiving`.

All connections are in an epoll instance of their own, which the event loop watches as one
reader. A step takes up to thirty-two that have something to read. Where nothing is expected,
the connection receives by itself, in Python. Else it is done here: a frame that is the
expected produce once more is compared, and its batch checked, without the GIL. The batches
for one partition that are under the same terms become a group, which is appended with one
call to Python; their answers are made and sent here. Bytes that are anything else are given
to their connection.

Bytes come from strangers: nothing is read before it is known to be there.
"""

import logging
import os

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from millstream.broker.network._known_frames cimport (
    AFTER_CORRELATION,
    ANSWERED,
    CORRELATION_AT,
    EXPECTED,
    GROUP_BYTES_MAX,
    NOTHING,
    OTHER,
    SIZE_BYTES,
    UNEXPECTED,
    Item,
    recognize,
)

cdef extern from "../../records/_native.h" nogil:
    void ms_crc_begin()
    void ms_put32(uint8_t* p, uint32_t v)
    void ms_put64(uint8_t* p, uint64_t v)

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data_t:
        void* ptr
    cdef struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event* event)
    int epoll_wait(int epfd, epoll_event* events, int maxevents, int timeout)
    const int EPOLL_CLOEXEC
    const uint32_t EPOLLIN
    const int EPOLL_CTL_ADD
    const int EPOLL_CTL_DEL

cdef extern from "sys/socket.h" nogil:
    ssize_t recv(int fd, void* buffer, size_t size, int flags)
    ssize_t send(int fd, const void* buffer, size_t size, int flags)
    const int MSG_DONTWAIT
    const int MSG_NOSIGNAL

log = logging.getLogger("millstream.broker.network.receiving")

ms_crc_begin()

cdef enum:
    # So many replies wait for each other: fewer, and every send wakes a client that wants a
    # core; more, and clients have nothing to do while hundreds are served.
    TOGETHER = 32
    # How often a turn of the loop takes so many; then others have their turn.
    STEPS_MAX = 2
    # As much as one connection may receive here at once. Larger frames come in pieces, which
    # is why nothing is expected from who sends them.
    RECEIVED_MAX = 1 << 16
    ANSWER_BYTES_MAX = 512
    # A client that sends something else so often in a row is not worth comparing.
    MISSES_MAX = 16
    # Clients that the node is told of in a step: two different ones show that it is shared.
    TOLD_MAX = 2

# It is told again of the same client after this time, a part of `client_turns.ACTIVE_SECONDS`.
cdef double HEAR_SECONDS = 0.01


cdef class Expected:
    """The produce that a client repeats, as bytes, and who appends it. Those under the same
    terms are appended together."""

    cdef bytes _before
    cdef bytes _answer
    cdef Py_ssize_t _offsets_at
    cdef object _terms
    cdef object _append
    cdef int _misses

    def __init__(self, bytes before_records, bytes answer, offsets_at, *, terms, append):
        if len(before_records) < AFTER_CORRELATION or len(answer) > ANSWER_BYTES_MAX:
            raise ValueError("no produce, or no answer to one")
        if not AFTER_CORRELATION <= offsets_at <= len(answer) - 24:
            raise ValueError("the answer has no room for its numbers")
        self._before = before_records
        self._answer = answer
        self._offsets_at = offsets_at
        self._terms = terms
        self._append = append

    cdef int write_answer(
        self, Item* item, int64_t base_offset, int64_t append_time_ms, int64_t log_start_offset
    ) except -1:
        cdef uint8_t* out = item.answer
        item.answer_bytes = len(self._answer)
        memcpy(out, PyBytes_AS_STRING(self._answer), item.answer_bytes)
        memcpy(out + SIZE_BYTES, item.data + SIZE_BYTES + CORRELATION_AT, 4)
        out += self._offsets_at
        ms_put64(out, <uint64_t> base_offset)
        ms_put64(out + 8, <uint64_t> append_time_ms)
        ms_put64(out + 16, <uint64_t> log_start_offset)
        return 0


cdef class BatchGroup:
    """Batches of several clients for one partition, back to back; see `storage.values`."""

    cdef object _view
    cdef uint8_t* _bytes
    cdef int _count
    cdef int _members[TOGETHER]
    cdef int _ends[TOGETHER]
    cdef int _records_until[TOGETHER]
    cdef readonly int size_bytes
    cdef readonly int largest_bytes
    # Only the codec: with any other bit a batch is not taken into a group.
    cdef readonly int attributes
    cdef readonly int64_t max_timestamp_ms
    # Records are counted from the first of the group: its last one, and the last one of the
    # batch with the largest timestamp.
    cdef readonly int last_offset_delta
    cdef readonly int max_timestamp_delta

    def __init__(self):
        memory = bytearray(GROUP_BYTES_MAX)
        # The view keeps the memory, and where it is.
        self._view = memoryview(memory)
        self._bytes = <uint8_t*> PyByteArray_AS_STRING(memory)

    def __len__(self):
        return self._count

    @property
    def producer_id(self):
        """A batch with one is not taken into a group."""
        return -1

    cdef void begin(self) noexcept:
        self._count = self.size_bytes = self.largest_bytes = self.attributes = 0
        self.last_offset_delta = -1
        self.max_timestamp_delta = 0
        self.max_timestamp_ms = -1

    cdef bint add(self, int member, Item* item) noexcept:
        cdef int size = <int> item.batch_bytes
        if self.size_bytes + size > GROUP_BYTES_MAX:
            return False
        memcpy(self._bytes + self.size_bytes, item.batch, size)
        self.size_bytes += size
        self.last_offset_delta += item.records
        self.largest_bytes = max(self.largest_bytes, size)
        self.attributes = max(self.attributes, item.attributes)
        if item.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = item.max_timestamp_ms
            self.max_timestamp_delta = self.last_offset_delta
        self._members[self._count] = member
        self._ends[self._count] = self.size_bytes
        self._records_until[self._count] = self.last_offset_delta + 1
        self._count += 1
        return True

    def stamped(self, int64_t base_offset, int32_t leader_epoch):
        """The bytes, with offsets from `base_offset` on and the leader epoch."""
        cdef int i, start = 0
        cdef int64_t offset = base_offset
        for i in range(self._count):
            ms_put64(self._bytes + start, <uint64_t> offset)
            ms_put32(self._bytes + start + 12, <uint32_t> leader_epoch)
            offset = base_offset + self._records_until[i]
            start = self._ends[i]
        return self._view[: self.size_bytes]

    def positions(self, int64_t first):
        """Where each batch begins, when the first does at `first`."""
        cdef int i
        found = [first]
        for i in range(self._count - 1):
            found.append(first + self._ends[i])
        return found

    def last_offsets(self, int64_t base_offset):
        """The last offset of each batch, when the first begins with `base_offset`."""
        cdef int i
        return [base_offset + self._records_until[i] - 1 for i in range(self._count)]


cdef class Registration:
    """A connection's place among those that are received from."""

    cdef Receiver _receiver
    cdef object _connection
    cdef Expected _expected
    cdef int _fd
    cdef bint _is_watched

    def expect(self, Expected expected):
        """Answer this request here, until something else comes.

        Only while all that came before is answered, and sent.
        """
        if expected._misses < MISSES_MAX and self._is_watched:
            self._expected = expected

    def pause(self):
        self._expected = None
        if self._is_watched:
            self._is_watched = False
            epoll_ctl(self._receiver._epoll, EPOLL_CTL_DEL, self._fd, NULL)

    def resume(self):
        cdef epoll_event event
        if self._is_watched or self._fd < 0:
            return
        event.events = EPOLLIN
        event.data.ptr = <void*> self
        if epoll_ctl(self._receiver._epoll, EPOLL_CTL_ADD, self._fd, &event) < 0:
            raise OSError(errno, os.strerror(errno))
        self._is_watched = True

    def close(self):
        """Before the descriptor is closed: its number may be given out again at once."""
        self.pause()
        self._fd = -1
        self._connection = None
        self._receiver._registrations.discard(self)


cdef class Receiver:
    cdef int _epoll
    # Who is in the epoll instance is alive.
    cdef set _registrations
    cdef object _loop
    cdef size_t _frame_bytes_max
    cdef object _view
    cdef uint8_t* _bytes
    cdef BatchGroup _group
    # The client that was told of last.
    cdef object _heard
    cdef double _hear_again_at
    cdef epoll_event _events[TOGETHER]
    cdef Item _items[TOGETHER]
    cdef uint8_t _answers[TOGETHER * ANSWER_BYTES_MAX]

    def __cinit__(self):
        self._epoll = -1

    def __init__(self, loop, size_t frame_bytes_max):
        # Not filled with zeros: what is never received into takes no memory then.
        memory = PyByteArray_FromStringAndSize(NULL, TOGETHER * RECEIVED_MAX)
        self._view = memoryview(memory)
        self._bytes = <uint8_t*> PyByteArray_AS_STRING(memory)
        self._registrations = set()
        self._loop = loop
        self._frame_bytes_max = frame_bytes_max
        self._group = BatchGroup()
        self._epoll = epoll_create1(EPOLL_CLOEXEC)
        if self._epoll < 0:
            raise OSError(errno, os.strerror(errno))
        loop.add_reader(self._epoll, self.turn)

    def register(self, connection, int fd):
        cdef Registration registration = Registration.__new__(Registration)
        registration._receiver = self
        registration._connection = connection
        registration._fd = fd
        registration.resume()
        self._registrations.add(registration)
        return registration

    def close(self):
        if self._epoll >= 0:
            self._loop.remove_reader(self._epoll)
            os.close(self._epoll)
            self._epoll = -1

    def turn(self):
        cdef int step, count
        for step in range(STEPS_MAX):
            if self._epoll < 0:
                return
            count = epoll_wait(self._epoll, self._events, TOGETHER, 0)
            if count <= 0:
                return
            self.serve(count)
            if count < TOGETHER:
                return

    cdef serve(self, int count):
        # As it was before anything is called: connections may be closed in the course of it,
        # their own and others.
        cdef list registrations = [], expected = []
        cdef int i, expecting = 0
        for i in range(count):
            registrations.append(<Registration> self._events[i].data.ptr)
            expected.append((<Registration> registrations[i])._expected)
            expecting += self.prepare(&self._items[i], registrations[i])
        if expecting:
            with nogil:
                self.receive(count)
            self.append(registrations, expected, count)
            self.answer(registrations, count)
        for i in range(count):
            if self._items[i].state <= OTHER:
                self.pass_on(&self._items[i], registrations[i])

    cdef int prepare(self, Item* item, Registration registration) except -1:
        if registration._expected is None:
            item.state = UNEXPECTED
            return 0
        item.state = NOTHING
        item.fd = registration._fd
        item.before = <const uint8_t*> PyBytes_AS_STRING(registration._expected._before)
        item.before_bytes = len(registration._expected._before)
        return 1

    cdef void receive(self, int count) noexcept nogil:
        cdef int i
        cdef uint8_t* free = self._bytes
        cdef Item* item
        for i in range(count):
            item = &self._items[i]
            if item.state != NOTHING:
                continue
            item.data = free
            item.received = recv(item.fd, free, RECEIVED_MAX, MSG_DONTWAIT)
            if item.received > 0:
                item.state = recognize(item, self._frame_bytes_max)
                free += item.received
            elif item.received == 0 or (errno != EAGAIN and errno != EINTR):
                # The end, or an error: the connection finds it as well.
                item.state = UNEXPECTED

    cdef append(self, list registrations, list expected, int count):
        """Write what came as expected, all under the same terms together."""
        cdef int i, j
        cdef Expected first
        cdef BatchGroup group = self._group
        for i in range(count):
            if self._items[i].state != EXPECTED:
                continue
            first = expected[i]
            group.begin()
            for j in range(i, count):
                if self._items[j].state == EXPECTED and (
                    (<Expected> expected[j])._terms is first._terms
                ):
                    if not group.add(j, &self._items[j]):
                        break
            self.append_group(registrations, expected)

    cdef append_group(self, list registrations, list expected):
        cdef BatchGroup group = self._group
        cdef Item* item
        cdef Expected one = expected[group._members[0]]
        cdef int i
        cdef int64_t offset, append_time_ms, log_start_offset
        try:
            appended = one._append(group)
        except Exception:
            # It may be written, so it is not tried again.
            log.exception("closing %d connections: request failed", group._count)
            for i in range(group._count):
                self._items[group._members[i]].state = NOTHING
                if (<Registration> registrations[group._members[i]])._fd >= 0:
                    (<Registration> registrations[group._members[i]])._connection.close()
            return
        if appended is None:
            for i in range(group._count):
                self._items[group._members[i]].state = OTHER
            return
        offset, append_time_ms, log_start_offset = appended
        for i in range(group._count):
            item = &self._items[group._members[i]]
            item.answer = &self._answers[group._members[i] * ANSWER_BYTES_MAX]
            one = expected[group._members[i]]
            one._misses = 0
            one.write_answer(
                item,
                offset + (group._records_until[i - 1] if i else 0),
                append_time_ms,
                log_start_offset,
            )
            item.state = ANSWERED

    cdef answer(self, list registrations, int count):
        cdef int i
        cdef Item* item
        cdef Registration registration
        for i in range(count):
            # A connection that was closed meanwhile has no descriptor any more.
            self._items[i].fd = (<Registration> registrations[i])._fd
        with nogil:
            for i in range(count):
                item = &self._items[i]
                if item.state == ANSWERED and item.fd >= 0:
                    item.sent = send(
                        item.fd, item.answer, item.answer_bytes, MSG_DONTWAIT | MSG_NOSIGNAL
                    )
                    item.failure = errno if item.sent < 0 else 0
        cdef double now = self._loop.time()
        cdef int told = 0
        for i in range(count):
            item = &self._items[i]
            registration = registrations[i]
            if item.state != ANSWERED or registration._fd < 0:
                continue
            if told < TOLD_MAX:
                client = registration._connection.client
                if client != self._heard or now >= self._hear_again_at:
                    self._heard = client
                    self._hear_again_at = now + HEAR_SECONDS
                    told += 1
                    registration._connection.on_answered(now)
            registration._connection.received_at = now
            registration._connection.sent_at = now
            if item.sent != <ssize_t> item.answer_bytes:
                registration._expected = None
                self.go_on_sending(item, registration)

    cdef go_on_sending(self, Item* item, Registration registration):
        if item.sent < 0 and item.failure != EAGAIN and item.failure != EINTR:
            registration._connection.on_send_failed(OSError(item.failure, os.strerror(item.failure)))
            return
        sent = max(item.sent, 0)
        registration._connection.on_unsent(item.answer[sent : item.answer_bytes])

    cdef pass_on(self, Item* item, Registration registration):
        """To the connection: it receives, or gets what was received."""
        cdef Py_ssize_t start
        if item.state == NOTHING or registration._fd < 0:
            return
        if registration._expected is not None:
            registration._expected._misses += 1
            registration._expected = None
        if item.state == UNEXPECTED:
            if registration._is_watched:
                registration._connection.on_readable()
        else:
            start = item.data - self._bytes
            registration._connection.on_received(self._view[start : start + item.received])
