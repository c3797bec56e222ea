"""Producer ids come in blocks, and a spare one is there when the store is away."""

import asyncio
from typing import cast

import pytest

from millstream.broker.coordination.producer_ids import ProducerIds
from millstream.cluster.metadata import ClusterMetadata
from millstream.errors import KafkaCode, KafkaError


class Store:
    """Hands out blocks of three, unless it is away."""

    def __init__(self) -> None:
        self.is_away = False
        self.blocks = 0

    async def allocate_producer_ids(self) -> range:
        await asyncio.sleep(0)
        if self.is_away:
            raise KafkaError(KafkaCode.COORDINATOR_NOT_AVAILABLE)
        self.blocks += 1
        return range(3 * self.blocks, 3 * self.blocks + 3)


def ids_from(store: Store) -> ProducerIds:
    return ProducerIds(cast(ClusterMetadata, store))


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_no_id_comes_twice() -> None:
    async def scenario() -> None:
        ids = ids_from(Store())
        assert [await ids.next() for _ in range(7)] == [3, 4, 5, 6, 7, 8, 9]

    asyncio.run(scenario())


def test_with_a_spare_block_new_producers_begin_while_the_store_is_away() -> None:
    async def scenario() -> None:
        store = Store()
        ids = ids_from(store)
        ids.keep_spare()
        await settled()
        store.is_away = True
        assert [await ids.next() for _ in range(3)] == [3, 4, 5]
        with pytest.raises(KafkaError):
            await ids.next()
        store.is_away = False
        assert await ids.next() >= 6
        await ids.stop()

    asyncio.run(scenario())


def test_a_spare_block_is_fetched_when_the_last_one_is_begun() -> None:
    async def scenario() -> None:
        store = Store()
        ids = ids_from(store)
        ids.keep_spare()
        await settled()
        assert await ids.next() == 3
        await settled()
        store.is_away = True
        assert [await ids.next() for _ in range(5)] == [4, 5, 6, 7, 8]
        await ids.stop()

    asyncio.run(scenario())
