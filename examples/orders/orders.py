"""Reads orders and writes invoices, each exactly once."""

import json
import uuid
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer

VAT = 0.2
MESSAGES_MAX = 100
_SECONDS_MAX = 30.0


@dataclass(frozen=True)
class Topics:
    orders: str
    invoices: str
    dead_letters: str


def invoice(order: dict[str, Any]) -> dict[str, Any]:
    """Raises KeyError and TypeError for what is not an order."""
    net = sum(line["price"] * line["count"] for line in order["lines"])
    return {"order": order["id"], "net": net, "total": round(net * (1 + VAT), 2)}


class InvoiceService:
    """`kafka` are the client's options, with `bootstrap.servers`."""

    def __init__(self, kafka: dict[str, Any], topics: Topics, *, group: str) -> None:
        self._topics = topics
        self._consumer = Consumer(
            {
                **kafka,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 10_000,
            }
        )
        self._producer = Producer({**kafka, "transactional.id": f"{group}-{uuid.uuid4()}"})
        self._producer.init_transactions(_SECONDS_MAX)
        self._consumer.subscribe([topics.orders])

    def run_once(self, timeout: float = 1.0) -> int:
        """Handle the orders that are there; how many they were."""
        messages = [
            message for message in self._consumer.consume(MESSAGES_MAX, timeout) if _usable(message)
        ]
        if messages:
            self._write(messages)
        return len(messages)

    def _write(self, messages: list[Message]) -> None:
        self._producer.begin_transaction()
        try:
            for message in messages:
                self._answer(message)
            positions = self._consumer.position(self._consumer.assignment())
            group = self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(positions, group, _SECONDS_MAX)
            self._producer.commit_transaction(_SECONDS_MAX)
        except BaseException:
            self._producer.abort_transaction(_SECONDS_MAX)
            raise

    def _answer(self, message: Message) -> None:
        try:
            value = json.dumps(invoice(json.loads(message.value() or b"")))
        except (KeyError, TypeError, ValueError) as problem:
            self._producer.produce(
                self._topics.dead_letters,
                message.value(),
                key=message.key(),
                headers={"problem": repr(problem)},
            )
        else:
            self._producer.produce(self._topics.invoices, value, key=message.key())

    def close(self) -> None:
        self._consumer.close()


def _usable(message: Message) -> bool:
    problem = message.error()
    if problem is not None and not problem.retriable():
        raise KafkaException(problem)
    return problem is None
