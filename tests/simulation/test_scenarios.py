"""Single situations in the simulated cluster, which a seed meets once in a thousand."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from millstream.client.aio import NoAnswer
from millstream.coordinators.consumer.heartbeat import HeartbeatRequest
from millstream.coordinators.journal import Shard
from millstream.errors import KafkaCode, KafkaError
from millstream.model import TRANSACTIONS_TOPIC, TopicPartition
from millstream.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from millstream.wire.apis.end_txn import EndTxnRequest
from tests.simulation.clients import SESSION_MS, TransactionalProducer, batch_of
from tests.simulation.node import LEASE_MS, OFFSETS, Node
from tests.simulation.store import DATA_TOPIC, NODES, READ_TOPIC, TOPIC_IDS
from tests.simulation.world import Fault, World

DATA = TopicPartition(DATA_TOPIC, 0)
TRANSACTIONS = TopicPartition(TRANSACTIONS_TOPIC, 0)


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


def run_client(client: Callable[[World], Coroutine[Any, Any, None]]) -> World:
    """A cluster without bad luck, and this client alone."""
    world = World(
        calm_seed(), faults=(), clients=lambda world: world.client_loop.create_task(client(world))
    )
    world.run_script()
    return world


async def end_transaction(owner: TransactionalProducer, name: str) -> None:
    """Abort, as a client without an epoch per transaction does."""
    await owner.handled(
        TRANSACTIONS,
        4,
        EndTxnRequest(
            transactional_id=name,
            producer_id=owner.producer.producer_id,
            producer_epoch=owner.producer.epoch,
            committed=False,
        ),
    )


async def write(world: World, name: str, owner: TransactionalProducer, sequence: int) -> object:
    """The first partition's answer to a batch of a client that has announced it."""
    data = batch_of(world, b"%d" % sequence, owner.producer, sequence, is_transactional=True)
    leader = world.store.states[DATA].leader
    return await world.ask(-1, leader, "produce", DATA, name, data, 11, loop=world.client_loop)


def is_anything_open(world: World) -> bool:
    log = world.nodes[world.store.states[DATA].leader].logs[DATA]
    return log.producers.states.first_open_offset() is not None


def verify_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, a coordinator's answer to other nodes takes half a second."""
    serve_peer = Node.serve_peer

    async def answer_late(self: Node, request: Any, version: int) -> object:
        answer = await serve_peer(self, request, version)
        if isinstance(request, AddPartitionsToTxnRequest):
            await asyncio.sleep(0.5)
        return answer

    monkeypatch.setattr(Node, "serve_peer", answer_late)


@pytest.mark.parametrize("earlier", [0, 1], ids=["first transaction", "second transaction"])
def test_a_write_whose_transaction_ends_while_it_is_verified_is_refused(
    earlier: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator is another node, and its answer is late. The client, one without an epoch
    per transaction, has aborted in the meantime. If it has ended another transaction before, the
    marker equals the one that the partition has, and is not written."""
    outcome: list[Any] = []

    async def client(world: World) -> None:
        owner = TransactionalProducer(world, "late", 1)
        await owner.take_over(None)
        for sequence in range(earlier):
            await owner.announce(0)
            await write(world, "late", owner, sequence)
            await end_transaction(owner, "late")
        verify_late(monkeypatch)
        await owner.announce(0)
        writing = world.client_loop.create_task(write(world, "late", owner, earlier))
        await asyncio.sleep(0.05)
        await end_transaction(owner, "late")
        outcome.append("aborted")
        try:
            outcome.append(await writing)
        except KafkaError as error:
            outcome.append(error.code)

    world = run_client(client)
    assert outcome == ["aborted", KafkaCode.TRANSACTION_ABORTABLE]
    assert not is_anything_open(world)


def elect(world: World, where: TopicPartition, leader: int) -> None:
    """As an administrator may ask for."""
    state = world.store.states[where]
    elected = replace(state, leader=leader, leader_epoch=state.leader_epoch + 1)
    world.store.write(where, elected, epochs={})
    world._state_changed()


def test_a_write_is_repeated_whose_partition_got_a_new_epoch_while_it_was_verified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The transaction is as open as before: TRANSACTION_ABORTABLE would end an application of
    Kafka Streams."""
    seen: list[object] = []

    async def client(world: World) -> None:
        owner = TransactionalProducer(world, "late", 1)
        await owner.take_over(None)
        await owner.announce(0)
        verify_late(monkeypatch)
        writing = world.client_loop.create_task(write(world, "late", owner, 0))
        await asyncio.sleep(0.05)
        elect(world, DATA, world.store.states[DATA].leader)
        with pytest.raises(KafkaError) as refused:
            await writing
        seen.append(refused.value.code)
        monkeypatch.undo()
        await write(world, "late", owner, 0)
        seen.append(is_anything_open(world))
        await end_transaction(owner, "late")

    world = run_client(client)
    assert seen == [KafkaCode.NOT_ENOUGH_REPLICAS, True]
    assert not is_anything_open(world)


def test_a_write_is_repeated_whose_coordinator_is_loading_since_it_was_verified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node that leads the partition has become the coordinator in the meantime."""
    seen: list[object] = []
    load = Shard.load

    async def load_late(self: Shard[Any, Any, Any]) -> None:
        await asyncio.sleep(0.6)
        await load(self)

    async def client(world: World) -> None:
        owner = TransactionalProducer(world, "late", 1)
        await owner.take_over(None)
        await owner.announce(0)
        verify_late(monkeypatch)
        writing = world.client_loop.create_task(write(world, "late", owner, 0))
        await asyncio.sleep(0.05)
        monkeypatch.setattr(Shard, "load", load_late)
        elect(world, TRANSACTIONS, world.store.states[DATA].leader)
        with pytest.raises(KafkaError) as refused:
            await writing
        seen.append(refused.value.code)
        monkeypatch.undo()
        await asyncio.sleep(0.2)
        await write(world, "late", owner, 0)
        seen.append(is_anything_open(world))
        await end_transaction(owner, "late")

    world = run_client(client)
    assert seen == [KafkaCode.NOT_ENOUGH_REPLICAS, True]
    assert not is_anything_open(world)


def test_a_transaction_is_aborted_whose_time_was_over_when_too_few_replicas_were_in_sync() -> None:
    seen: list[object] = []

    async def client(world: World) -> None:
        owner = TransactionalProducer(world, "slow", 1)
        await owner.take_over(None)
        await owner.announce(0)
        await write(world, "slow", owner, 0)
        coordinator = world.store.states[TRANSACTIONS].leader
        for node in NODES:
            if node != coordinator:
                world._break(Fault(0, "kill", node, 0, 3_000))
        await asyncio.sleep(2.5)
        seen.append(world.store.states[TRANSACTIONS].isr)
        seen.append(is_anything_open(world))

    world = run_client(client)
    isr, was_open = seen
    assert isinstance(isr, tuple)
    assert len(isr) == 1
    assert was_open
    assert not is_anything_open(world)


def test_a_coordinator_without_its_lease_ends_no_member() -> None:
    """It is cut off from the store and was replaced; the member is in touch with its successor.
    What it wrote would count if it were elected again before it has followed anyone."""
    seen: list[tuple[bool, bool, int]] = []

    async def heartbeat(world: World, node: int, epoch: int) -> int:
        request = HeartbeatRequest(
            group_id="new",
            member_id="m",
            epoch=epoch,
            client_id="m",
            client_host="/",
            rebalance_timeout_ms=600,
            topics=(READ_TOPIC,),
            owned={TOPIC_IDS[READ_TOPIC]: (0, 1, 2, 3)} if epoch else {},
        )
        answer = await world.ask(-1, node, "consumer_heartbeat", request, loop=world.client_loop)
        return int(answer.epoch)

    async def client(world: World) -> None:
        epoch = 0
        while not epoch:
            try:
                epoch = await heartbeat(world, world.store.states[OFFSETS].leader, 0)
            except (KafkaError, NoAnswer):
                await asyncio.sleep(0.02)
        replaced = world.nodes[world.store.states[OFFSETS].leader]
        world._break(Fault(0, "cut", replaced.id, 0, 3_000))
        await asyncio.sleep(LEASE_MS / 1000)
        written = replaced.logs[OFFSETS].next_offset
        until_ms = world.now_ms + 3 * SESSION_MS
        while world.now_ms < until_ms:
            with suppress(KafkaError, NoAnswer):
                epoch = await heartbeat(world, world.store.states[OFFSETS].leader, epoch)
            await asyncio.sleep(0.04)
        seen.append(
            (
                world.store.states[OFFSETS].leader != replaced.id,
                replaced.partitions.get(OFFSETS.topic, 0).is_leader,
                replaced.logs[OFFSETS].next_offset - written,
            )
        )

    run_client(client)
    # It was replaced, does not know it, and has written nothing.
    assert seen == [(True, True, 0)]
