"""A producer that writes to one topic again and again: its requests, without decoding.

`wire.repeated` knows what such a request begins with; `produced_batches` compares it with that,
and finds and checks the batch of each partition in one pass. Terms are those of `admission`, in
the generation of the shortcut, and every batch ends in `Partition.append`, like those of any other
request. A request with anything unusual about it is left, before anything of it is appended, to
the general route. In compiled code many connections share a write (`network.receiving`); they
send to one partition each.
"""

import asyncio
from functools import partial
from typing import Final, Protocol

from millstream.broker.network.connection import Connection
from millstream.broker.network.receiving import COMPILED, Expected, Placed
from millstream.broker.network.replies import Pending, Pieces, Shortcut
from millstream.broker.network.tls_connection import TlsConnection
from millstream.broker.node.state import NodeState
from millstream.broker.requests.admission import Admissions
from millstream.broker.requests.produce_answers import (
    Results,
    answer_durable,
    answer_produce,
    answer_when_done,
    answer_when_durable,
    refused_result,
)
from millstream.broker.requests.produced_batches import IMPLEMENTATION
from millstream.broker.requests.request import Request
from millstream.errors import KafkaCode, KafkaError
from millstream.records.batch import BatchView
from millstream.records.validation import LIGHT, LIGHT_PLAIN, checked_batch, checked_whole_batch
from millstream.replication.admission import WriteTerms
from millstream.replication.partition import Partition
from millstream.storage.values import BatchGroup
from millstream.wire.apis.produce import ProduceRequest
from millstream.wire.produce import ProduceResult
from millstream.wire.repeated import Placed as PlacedIn
from millstream.wire.repeated import RepeatedProduce

PRODUCE: Final = ProduceRequest.api.key
# Partitions that a connection knows; each takes up to two kilobytes. Beyond, it learns them anew.
TARGETS_MAX: Final = 500


class Parts(Protocol):
    """The parts of the node that a repeated produce uses."""

    @property
    def node(self) -> NodeState: ...
    @property
    def admissions(self) -> Admissions: ...
    @property
    def counts(self) -> dict[int, int]: ...


class _Target:
    """A partition that the client may write to, in one generation."""

    __slots__ = ("expected", "partition", "terms")

    def __init__(self, partition: Partition, terms: WriteTerms, expected: Expected | None) -> None:
        self.partition = partition
        self.terms = terms
        # The same request for `network.receiving`; None where that cannot answer it.
        self.expected = expected


class _RepeatedProduces:
    """The requests of one connection for one topic.

    Its shortcut refers to it, and it does not refer to its shortcut: the partitions, which may be
    deleted, and all their producers would be in memory until all garbage is collected.
    """

    __slots__ = ("_last_index", "_parts", "_repeated", "_targets")

    def __init__(self, parts: Parts, repeated: RepeatedProduce) -> None:
        self._parts = parts
        self._repeated = repeated
        self._targets: dict[int, _Target] = {}
        self._last_index = -1

    def answer(self, connection: Connection, frame: memoryview) -> Pieces | Pending | None:
        """The request once more, with new records; None for any other."""
        if len(frame) > LIGHT_PLAIN:
            return None
        found = IMPLEMENTATION.batches_of(frame, self._repeated.before_partitions)
        if found is None:
            return None
        now_ms = self._parts.node.clock.now_ms()
        batches: list[tuple[int, _Target, BatchView]] = []
        # For all partitions together, as in `batch_checks`.
        left_bytes = LIGHT
        try:
            for index, data, is_whole in found:
                known = self._targets.get(index) or self._learn(connection, index)
                if known is None or len(data) > LIGHT_PLAIN:
                    return None
                rules = known.terms.rules
                batch = checked_whole_batch(data, rules, now_ms) if is_whole else None
                if batch is None:
                    batch = checked_batch(data, rules, now_ms, decoded_bytes_max=left_bytes)
                    left_bytes -= batch.decoded_bytes
                batches.append((index, known, batch))
        except KafkaError:
            # A batch that takes long to unpack, or a bad one: nothing is appended yet.
            return None
        self._parts.counts[PRODUCE] += 1
        if len(batches) == 1:
            index, target, _ = batches[0]
            shortcut = connection.shortcut
            assert shortcut is not None, "it has led here"
            if target.expected is not shortcut.expected:
                self._expect(shortcut, index, target)
        return self._append(connection, frame, batches, now_ms)

    def _learn(self, connection: Connection, index: int) -> _Target | None:
        """None for a partition that is not written to, or not as it comes."""
        parts, repeated = self._parts, self._repeated
        partition = parts.node.partitions.find(repeated.topic.name, index)
        # Batches that are recompressed are so in a thread, before the append.
        if partition is None or partition.log.config.compression_type is not None:
            return None
        terms = self._terms(connection, partition)
        if terms.refusal is not None:
            return None
        expected = None
        # What is encrypted cannot be compared.
        is_plain = not isinstance(connection, TlsConnection)
        if COMPILED is not None and is_plain and terms.answers_at_once:
            expected = COMPILED.Expected(
                repeated.before_records(index),
                repeated.answer(0, [(index, 0, 0, 0)]),
                repeated.answer_offsets_at,
                terms=terms,
                append=partial(_append_group, parts, partition, terms),
            )
        if len(self._targets) >= TARGETS_MAX:
            self._targets.clear()
        target = self._targets[index] = _Target(partition, terms, expected)
        return target

    def _terms(self, connection: Connection, partition: Partition) -> WriteTerms:
        return self._parts.admissions.of(connection, partition).write_terms(
            is_acks_all=self._repeated.is_acks_all, is_transactional=False
        )

    def expected_at_once(self, connection: Connection, index: int) -> Expected | None:
        self._last_index = index
        target = self._learn(connection, index)
        return None if target is None else target.expected

    def _expect(self, shortcut: Shortcut, index: int, target: _Target) -> None:
        """The receiver compares with one partition; another one has to come twice for that."""
        if index == self._last_index:
            shortcut.expected = target.expected
        self._last_index = index

    def _append(
        self,
        connection: Connection,
        frame: memoryview,
        batches: list[tuple[int, _Target, BatchView]],
        now_ms: int,
    ) -> Pieces | Pending:
        node, repeated = self._parts.node, self._repeated
        generation = node.partitions.generation
        durability = node.disk.durability
        placed: list[PlacedIn] = []
        failures: dict[int, KafkaError] = {}
        # By their place in the request.
        waits: dict[int, asyncio.Future[None]] = {}
        for place, (index, target, batch) in enumerate(batches):
            partition, terms = target.partition, target.terms
            if terms.generation != generation.number:
                # An earlier append has found a broken disk, for example.
                terms = self._terms(connection, partition)
            try:
                appended = partition.append(batch, terms, now_ms=now_ms)
            except KafkaError as error:
                failures[place] = error.kept()
                placed.append((index, -1, -1, -1))
                continue
            placed.append(
                (index, appended.base_offset, appended.append_time_ms, appended.log_start_offset)
            )
            if not terms.answers_at_once:
                wait = durability.wait_if_needed(
                    partition, appended.next_offset, is_acks_all=repeated.is_acks_all
                )
                if wait is not None:
                    waits[place] = wait
        if not waits and not failures:
            return [repeated.answer(repeated.correlation_of(frame), placed)]
        request = Request(repeated.header_of(frame), connection)
        if not failures:
            answer = _WhenDurable(repeated, request, placed, waits)
            return answer.of_one(waits[0]) if len(placed) == 1 else answer.of_all()
        results = _results(placed)
        for place, failure in failures.items():
            refused_result(node, results[place], failure)
        by_topic: Results = [(repeated.topic, results)]
        if not waits:
            return answer_produce(request, by_topic)
        unsafe = [(results[place], wait) for place, wait in waits.items()]
        return Pending(answer_when_durable(request, repeated.timeout_ms, by_topic, unsafe))


def repeated_shortcut(
    parts: Parts, connection: Connection, repeated: RepeatedProduce, indexes: list[int]
) -> Shortcut:
    """What answers this request, to these partitions, when it is repeated."""
    produces = _RepeatedProduces(parts, repeated)
    shortcut = Shortcut(produces.answer, parts.node.partitions.generation.number)
    if len(indexes) == 1:
        shortcut.expected = produces.expected_at_once(connection, indexes[0])
    return shortcut


def _append_group(
    parts: Parts, partition: Partition, terms: WriteTerms, group: BatchGroup
) -> Placed | None:
    """Several requests to one partition, under the same terms. None if each must be handled
    separately: it is then admitted again, or gets its own error."""
    if terms.generation != parts.node.partitions.generation.number:
        return None
    try:
        appended = partition.append(group, terms, now_ms=parts.node.clock.now_ms())
    except KafkaError:
        return None
    parts.counts[PRODUCE] += len(group)
    return appended.base_offset, appended.append_time_ms, appended.log_start_offset


def _results(placed: list[PlacedIn]) -> list[ProduceResult]:
    return [
        ProduceResult(index, KafkaCode.NONE, base_offset, append_time_ms, log_start_offset)
        for index, base_offset, append_time_ms, log_start_offset in placed
    ]


class _WhenDurable:
    """What is answered when the waits are over: the records are safe, or the deadline passed."""

    __slots__ = ("_placed", "_repeated", "_request", "_timer", "_waits")

    _timer: asyncio.TimerHandle

    def __init__(
        self,
        repeated: RepeatedProduce,
        request: Request,
        placed: list[PlacedIn],
        waits: dict[int, "asyncio.Future[None]"],
    ) -> None:
        """The waits by their place in the request."""
        self._repeated = repeated
        self._request = request
        self._placed = placed
        self._waits = waits

    def of_one(self, wait: "asyncio.Future[None]") -> Pending:
        """To a request for one partition. The cheapest way to wait."""
        self._timer = asyncio.get_running_loop().call_later(
            max(self._repeated.timeout_ms, 0) / 1000, wait.cancel
        )
        return Pending(wait, finish=self._finish)

    def of_all(self) -> Pending:
        unsafe = list(self._waits.values())
        return Pending(answer_when_done(self._repeated.timeout_ms, unsafe, self._answer))

    def _finish(self, _: "asyncio.Future[None]") -> Pieces:
        self._timer.cancel()
        return self._answer()

    def _answer(self) -> Pieces:
        request, waits = self._request, self._waits
        if all(map(_is_safe, waits.values())):
            return [self._repeated.answer(request.header.correlation_id, self._placed)]
        results = _results(self._placed)
        unsafe = [(results[place], wait) for place, wait in waits.items()]
        return answer_durable(request, [(self._repeated.topic, results)], unsafe)


def _is_safe(wait: "asyncio.Future[None]") -> bool:
    return wait.done() and not wait.cancelled() and wait.exception() is None
