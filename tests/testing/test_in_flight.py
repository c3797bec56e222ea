from confluent_kafka import ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from millstream.testing import Broker
from tests.support.waiting import wait_until


def test_what_is_in_flight_and_locks_that_end_with_the_clock() -> None:
    with Broker(topics={"orders": 1}) as broker:
        assert broker.in_flight("workers") == []
        broker.topic("orders").produce(["a", "b", "c"])
        admin = AdminClient(broker.client_config())
        entry = ConfigEntry(
            "share.auto.offset.reset",
            "earliest",
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource(ResourceType.GROUP, "workers", incremental_configs=[entry])
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(20)
        consumer = ShareConsumer({**broker.client_config(), "group.id": "workers"})
        consumer.subscribe(["orders"])
        got: list[bytes | None] = []

        def has_all() -> bool:
            got.extend(message.value() for message in consumer.poll(1))
            return len(got) >= 3

        wait_until(has_all, "three records")
        rows = broker.in_flight("workers")
        assert sum(row.last - row.first + 1 for row in rows) == 3
        assert all(row.member_id and row.deliveries == 1 for row in rows)
        broker.clock.advance(seconds=30)
        wait_until(
            lambda: all(row.member_id is None for row in broker.in_flight("workers")),
            "the locks are over",
        )
        consumer.close()
