"""Covers console/pages/storage.py, console/partition_storage.py, console/sampling.py."""

from confluent_kafka import Producer

from millstream.console.facts import ClusterFacts, PartitionFacts, TopicFacts
from millstream.console.pages.storage import hex_lines
from millstream.console.sampling import isr_changes, offset_counts, record_rates
from millstream.storage.inspection.batch_layout import Field
from tests.support.console_node import Browser, ConsoleNode


def test_a_partition_from_inside(web: Browser, topic: str) -> None:
    found = web.api(f"/topics/{topic}/storage?partition=1")["storage"]
    [segment] = found["segments"]
    assert (segment["base_offset"], segment["next_offset"], segment["is_active"]) == (0, 5, True)
    assert segment["deletion"]["rule"] == "time"
    durability = found["durability"]
    assert (durability["next_offset"], durability["high_watermark"]) == (5, 5)
    assert durability["unsynced_records"] + durability["synced_offset"] == 5
    assert (durability["unsynced_bytes"] > 0) == (durability["unsynced_records"] > 0)
    assert found["replication"]["acks_all"] == "succeed"
    assert found["compaction"] is None
    assert found["detail"]["path"].endswith(".log")


def test_segments_of_a_compacted_topic(web: Browser) -> None:
    web.call("/topics", name="compacted", **{"cleanup.policy": "compact"})
    web.call("/topics/compacted/config", name="segment.bytes", value="1048576")
    for _ in range(3):
        answer = web.call("/topics/compacted/produce", key="k", value="x" * 700_000)
        assert answer.status == 200, answer.text
    found = web.api("/topics/compacted/storage")["storage"]
    assert found["segment_count"] == 3
    assert found["compaction"]["dirty_bytes"] > 0
    older = found["segments"][0]["base_offset"]
    chosen = web.api(f"/topics/compacted/storage?segment={older}")["storage"]["detail"]
    assert chosen["base_offset"] == older
    assert web.get("/topics/compacted/storage?segment=77").status == 404
    assert web.get("/topics/compacted/storage").status == 200


def test_an_offset_and_a_time_are_explained(web: Browser, topic: str) -> None:
    by_offset = web.api(f"/topics/{topic}/storage?at=3")["explanation"]
    assert by_offset["batch_bytes"] > 0
    by_time = web.api(f"/topics/{topic}/storage?at=@-1h")["explanation"]
    assert "time index" in " ".join(by_time["steps"])
    beyond = web.api(f"/topics/{topic}/storage?at=999")["explanation"]
    assert beyond["position"] is None
    assert web.get(f"/topics/{topic}/storage?at=soon").status == 400


def test_an_open_transaction_holds_back_the_stable_offset(
    console_node: ConsoleNode, web: Browser, topic: str
) -> None:
    producer = Producer(
        {"bootstrap.servers": console_node.bootstrap, "transactional.id": f"t-{topic}"}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(60)
    found = web.api(f"/topics/{topic}/storage")["storage"]
    assert found["producers"][0]["transaction_first_offset"] == 5
    assert found["producers"][0]["holds_back_stable_offset"]
    assert found["durability"]["last_stable_offset"] == 5
    producer.abort_transaction(60)
    after = web.api(f"/topics/{topic}/storage")["storage"]
    assert after["producers"][0]["transaction_first_offset"] is None


def test_a_batch_byte_by_byte(web: Browser, topic: str) -> None:
    view = web.api(f"/topics/{topic}/batch?partition=0&offset=2")
    assert view["base_offset"] <= 2 < view["next_offset"]
    names = [field["name"] for field in view["fields"]]
    assert names[0] == "baseOffset"
    [crc] = [field for field in view["fields"] if field["name"] == "crc"]
    assert crc["meaning"] == "right"
    assert web.get(f"/topics/{topic}/batch?offset=2").status == 200
    assert web.get(f"/topics/{topic}/batch?offset=99").status == 404


def test_hex_lines_are_split_at_fields() -> None:
    fields = [Field(0, 2, "a", ""), Field(2, 18, "b", "")]
    lines = hex_lines(bytes(range(18)), fields)
    assert next((piece.field, piece.text) for piece in lines[0].pieces) == (0, "00 01")
    assert [(piece.field, piece.text) for piece in lines[1].pieces] == [(1, "10 11")]


def facts(leader: int, isr: list[int], end: int = 10) -> ClusterFacts:
    partition = PartitionFacts(0, leader, 3, [1, 2], isr, 0, end)
    return ClusterFacts(50, "c", 1, [], {"t": TopicFacts("t", False, [partition])})


def test_changes_of_the_isr_are_events() -> None:
    [event] = isr_changes(facts(1, [1, 2]), facts(2, [2]))
    assert (event.leader_before, event.leader, event.isr) == (1, 2, [2])
    assert event.is_of("t", 0)
    assert list(isr_changes(facts(1, [1]), facts(1, [1]))) == []


def test_a_topic_with_an_unknown_end_has_no_rate() -> None:
    assert offset_counts(facts(1, [1], end=-1)) == {}
    assert offset_counts(facts(1, [1])) == {("t", None): 10}
    assert record_rates(facts(1, [1]), {("t", None): 4.0, ("t", "g"): 3.0}) == {
        "cluster.records_in": 4.0,
        "cluster.records_out": 3.0,
        "topic.t.records_in": 4.0,
        "topic.t.records_out": 3.0,
    }
