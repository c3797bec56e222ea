from confluent_kafka import ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from millstream.testing import Broker
from tests.support.raw_client import RawClient
from tests.support.share_member import ShareMember, set_group_options
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
        assert {row.state for row in rows} == {"acquired"}
        broker.clock.advance(seconds=30)
        wait_until(
            lambda: {row.state for row in broker.in_flight("workers")} == {"available"},
            "the locks are over",
        )
        consumer.close()


def test_a_delayed_record_is_available_when_the_clock_has_moved() -> None:
    with Broker(topics={"orders": 1}) as broker:
        with RawClient(broker.bootstrap) as client:
            set_group_options(client, "workers", share_auto_offset_reset="earliest")
        due_ms = broker.clock.now_ms() + 20_000
        headers = {"millstream.not.before.ms": str(due_ms)}
        broker.topic("orders").produce([(None, "later", headers)])
        with ShareMember(broker.bootstrap, "workers", "orders") as member:
            member.join()
            wait_until(lambda: bool(member.fetch() and broker.in_flight("workers")), "the record")
            assert [row.state for row in broker.in_flight("workers")] == ["delayed"]
            broker.clock.advance(seconds=20)
            assert member.fetch(wait_ms=20_000).ranges == [(0, 0, 1)]
            [row] = broker.in_flight("workers")
            assert (row.state, row.member_id) == ("acquired", member.member_id)
