"""Before a transaction's first write to a partition: does the coordinator know of it? (KIP-890)

Clients from Produce 12 and TxnOffsetCommit 5 on do not announce partitions; their first
write adds them. Older ones announce them, and this is checked. Without the check, a late
write could open a transaction that nothing ever ends.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from millstream.broker.coordination.transactions import TransactionCoordinator
from millstream.broker.node.state import NodeState
from millstream.broker.requests.transaction_codes import PRODUCE_ADDS_FROM, produce_code
from millstream.coordinators.codecs.transactions import Partitions
from millstream.coordinators.decision import ProducerEpoch
from millstream.errors import KafkaCode, KafkaError
from millstream.records.batch import HEADER_BYTES, BatchView
from millstream.wire.produce import ProduceRequest

# What must not be written: (topic, partition) and the reason.
Refused = dict[tuple[str, int], KafkaError]


def check_produce(
    node: NodeState, transactions: TransactionCoordinator, version: int, body: ProduceRequest
) -> Refused | Coroutine[Any, Any, Refused]:
    """What of a transactional produce must not be appended, now or after a wait."""
    refused: Refused = {}
    first_writes = _first_writes(node, transactions, version, body, refused)
    assert body.transactional_id is not None
    later: list[_Later] = []
    for producer, indexes in first_writes.items():
        partitions = {topic: frozenset(found) for topic, found in indexes.items()}
        check = _Later(transactions, body.transactional_id, producer, partitions, version)
        if check.start(refused):
            later.append(check)
    return _finish(later, refused) if later else refused


async def _finish(later: "list[_Later]", refused: Refused) -> Refused:
    for check in later:
        await check.finish(refused)
    for check in later:
        # Another request may have ended the transaction while we waited.
        check.check_again(refused)
    return refused


def _first_writes(
    node: NodeState,
    transactions: TransactionCoordinator,
    version: int,
    body: ProduceRequest,
    refused: Refused,
) -> dict[ProducerEpoch, dict[str, set[int]]]:
    found: dict[ProducerEpoch, dict[str, set[int]]] = {}
    for topic in body.topics:
        for index, data in topic.partitions:
            partition = node.partitions.find(topic.name, index)
            if partition is None or not data or len(data) < HEADER_BYTES:
                continue
            batch = BatchView(data)
            producers = partition.log.producers.states
            producer = ProducerEpoch(batch.producer_id, batch.producer_epoch)
            if not batch.is_transactional or producers.has_open_transaction(
                producer.producer_id, producer.epoch
            ):
                continue
            is_unknown = producers.get(producer.producer_id) is None
            if version >= PRODUCE_ADDS_FROM and batch.base_sequence != 0 and is_unknown:
                refused[topic.name, index] = _not_the_first(transactions, body, producer)
                continue
            found.setdefault(producer, {}).setdefault(topic.name, set()).add(index)
    return found


def _not_the_first(
    transactions: TransactionCoordinator, body: ProduceRequest, producer: ProducerEpoch
) -> KafkaError:
    """With an epoch per transaction, a producer that the partition does not know starts a
    new sequence. But an outdated producer is the more important error."""
    assert body.transactional_id is not None
    try:
        transactions.check_current(body.transactional_id, producer)
    except KafkaError as error:
        return KafkaError(produce_code(error.code, PRODUCE_ADDS_FROM), error.message)
    return KafkaError(KafkaCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


class _Later:
    """One producer's question to the coordinator, which may take a while to answer."""

    def __init__(
        self,
        transactions: TransactionCoordinator,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Partitions,
        version: int,
    ) -> None:
        self._coordinator = transactions
        self._transactional_id = transactional_id
        self._producer = producer
        self._partitions = partitions
        self._version = version
        self._waiting: asyncio.Future[Any] | None = None
        self._markers = transactions.markers(producer, partitions)

    def start(self, refused: Refused) -> bool:
        """Ask the coordinator; return whether the answer is still pending."""
        try:
            answer = self._ask()
        except KafkaError as error:
            self._refuse_all(error, refused)
            return False
        if isinstance(answer, asyncio.Future):
            self._waiting = answer
            return True
        self._take(answer, refused)
        return False

    def _ask(self) -> Any:
        ask = (
            self._coordinator.add_anywhere
            if self._version >= PRODUCE_ADDS_FROM
            else self._coordinator.verify_anywhere
        )
        return ask(self._transactional_id, self._producer, self._partitions)

    async def finish(self, refused: Refused) -> None:
        assert self._waiting is not None
        try:
            self._take(await self._waiting, refused)
        except KafkaError as error:
            self._refuse_all(error, refused)

    def check_again(self, refused: Refused) -> None:
        try:
            self._coordinator.check_open(
                self._transactional_id, self._producer, self._partitions, before=self._markers
            )
        except KafkaError as error:
            self._refuse_all(error, refused)

    def _take(self, answer: object, refused: Refused) -> None:
        if isinstance(answer, Mapping):
            for where, code in answer.items():
                if code is not KafkaCode.NONE:
                    refused[where] = KafkaError(produce_code(code, self._version))

    def _refuse_all(self, error: KafkaError, refused: Refused) -> None:
        refusal = KafkaError(produce_code(error.code, self._version), error.message)
        for topic, indexes in self._partitions.items():
            for index in indexes:
                refused.setdefault((topic, index), refusal)
