"""Single situations in the simulated cluster, which a seed meets once in a thousand."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.errors import KafkaCode, KafkaError
from millstream.model import TopicPartition
from millstream.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from millstream.wire.apis.end_txn import EndTxnRequest
from tests.simulation.clients import TransactionalProducer, batch_of
from tests.simulation.node import Node
from tests.simulation.store import DATA_TOPIC
from tests.simulation.world import World

DATA = TopicPartition(DATA_TOPIC, 0)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def calm_seed() -> int:
    """One without losses and late messages."""
    return next(
        seed
        for seed in range(1_000)
        for options in [World(seed).options]
        if options.loss == options.late == 0.0 and options.min_isr == 2
    )


def test_a_write_whose_transaction_ends_while_it_is_verified_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The coordinator is another node, and its answer is late. The client, one without an epoch
    per transaction, has aborted in the meantime."""
    outcome: list[Any] = []

    async def answer_late(self: Node, request: Any, version: int) -> object:
        answer = await serve_peer(self, request, version)
        if isinstance(request, AddPartitionsToTxnRequest):
            await asyncio.sleep(0.5)
        return answer

    serve_peer = Node.serve_peer
    monkeypatch.setattr(Node, "serve_peer", answer_late)

    async def client(world: World) -> None:
        owner = TransactionalProducer(world, "late", 1)
        await owner.take_over(None)
        await owner.announce(0)
        data = batch_of(world, b"late", owner.producer, 0, is_transactional=True)
        leader = world.store.states[DATA].leader
        write = world.ask(-1, leader, "produce", DATA, "late", data, 11, loop=world.client_loop)
        await asyncio.sleep(0.05)
        await owner.handled(
            TopicPartition("__transaction_state", 0),
            4,
            EndTxnRequest(
                transactional_id="late",
                producer_id=owner.producer.producer_id,
                producer_epoch=owner.producer.epoch,
                committed=False,
            ),
        )
        outcome.append("aborted")
        try:
            outcome.append(await write)
        except KafkaError as error:
            outcome.append(error.code)

    world = World(
        calm_seed(), faults=(), clients=lambda world: world.client_loop.create_task(client(world))
    )
    world.run_script()
    assert outcome == ["aborted", KafkaCode.TRANSACTION_ABORTABLE]
    log = world.nodes[world.store.states[DATA].leader].logs[DATA]
    assert log.producers.states.first_open_offset() is None
