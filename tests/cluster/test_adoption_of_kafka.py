"""A directory that a real Apache Kafka wrote a moment ago, and that it opens again.

Covers cluster/adoption.py, cluster/kraft.py.
"""

import asyncio
import os
import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.cluster.adoption import adopt, needs_adoption, plan_adoption
from millstream.cluster.kraft import METADATA_DIRECTORY
from millstream.cluster.metadata import ClusterMetadata, start_alone
from millstream.cluster.stores.embedded import open_embedded_store
from millstream.config import load_config
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.slow, pytest.mark.java]


def new_ids():
    while True:
        yield uuid.uuid4()


def test_kafkas_topics_are_taken_over_and_kafka_opens_the_directory_again(tmp_path):
    data = tmp_path / "data"
    settings = {"metadata.log.max.record.bytes.between.snapshots": "1500"}
    with ApacheKafka(data, settings=settings) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        wanted = [
            NewTopic("forever", 3, 1, config={"retention.ms": "-1"}),
            NewTopic("compacted", 2, 1, config={"cleanup.policy": "compact"}),
            NewTopic("gone", 1, 1),
        ]
        for future in admin.create_topics(wanted).values():
            future.result()
        admin.delete_topics(["gone"])["gone"].result()
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
        producer.produce("forever", b"value")
        assert producer.flush(30) == 0

    assert needs_adoption(data)
    metadata_before = _metadata_files(data)
    asyncio.run(_adopt_and_check(data))
    assert not needs_adoption(data)
    assert _metadata_files(data) == metadata_before

    with ApacheKafka(data, settings=settings) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        assert {"forever", "compacted"} <= set(admin.list_topics(timeout=30).topics)


async def _adopt_and_check(data) -> None:
    plan = plan_adoption(data, load_config())
    assert plan.problems == []
    store = await open_embedded_store(data)
    await adopt(plan, store, broker_id=1, new_topic_ids=new_ids())
    alone = await start_alone(store, broker_id=1, random_bytes=os.urandom)
    controller = ClusterMetadata(alone, load_config(), broker_id=1, random_bytes=os.urandom)
    topics = controller.image.topics
    assert set(topics) == {"forever", "compacted"}
    assert topics["forever"].overrides == {"retention.ms": "-1"}
    assert topics["compacted"].overrides == {"cleanup.policy": "compact"}
    assert [len(topics[name].partitions) for name in ("forever", "compacted")] == [3, 2]
    assert (await controller.allocate_producer_ids()).start >= 1000
    await store.close()


def _metadata_files(data) -> dict[str, bytes]:
    folder = data / METADATA_DIRECTORY
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
