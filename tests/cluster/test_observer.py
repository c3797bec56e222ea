"""What enters the image together, and what does not wait for it."""

import asyncio
import uuid

from millstream.cluster import observer as observer_module
from millstream.cluster import znodes
from millstream.cluster.observer import ImageChange, Observer
from millstream.cluster.state import ClusterImage, PartitionState, TopicState
from millstream.cluster.stores.memory import MemoryTree
from millstream.cluster.stores.store import Create, Put
from tests.cluster.world import until

TOPIC_ID = uuid.UUID(int=7)


def state(leader: int, version: int = 0) -> PartitionState:
    return PartitionState(
        leader=leader,
        leader_epoch=version,
        isr=(1, 2),
        replicas=(1, 2),
        version=version,
        min_isr=1,
        writer_token="made",
    )


def test_of_many_states_the_first_take_effect_before_the_last_are_read(monkeypatch):
    monkeypatch.setattr(observer_module, "STATES_PER_ROUND", 2)

    async def scenario():
        store = MemoryTree().open_session()
        await store.commit([Create(path) for path in znodes.BASE_PATHS])
        await store.commit([Create(znodes.CONTROLLER_EPOCH, b"1")])
        topic = TopicState("t", TOPIC_ID, [state(1)] * 5)
        await store.commit(list(znodes.create_topic(topic, controller_epoch=1)))
        observer = Observer(store, ClusterImage())
        await observer.start()
        changes: list[ImageChange] = []
        observer.listeners.append(changes.append)
        await store.commit(
            [
                Put(
                    znodes.partition_state_path("t", number),
                    znodes.encode_partition(state(2, 1), 1, TOPIC_ID),
                )
                for number in (3, 1, 4, 0, 2)
            ]
        )
        await until(lambda: observer.image.topics["t"].partitions[2].leader == 2)
        # In the order in which they were written.
        rounds = [[where.partition for where in change.partitions] for change in changes]
        assert rounds == [[3, 1], [4, 0], [2]]
        await observer.stop()

    asyncio.run(scenario())
