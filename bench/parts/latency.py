"""Latency at fixed rates, one record a request: to the ack, and to a waiting consumer."""

from collections.abc import Callable
from dataclasses import replace

from bench import frames
from bench.bench import Bench
from bench.brokers import Broker
from bench.loads import ONE_RECORD, produce
from bench.replay import Replayed, replay, write_frames
from bench.rows import Row, Target, at_most

PART = "latency"
Measure = Callable[[Bench, Broker, int], Replayed]
_TARGETS: dict[int, Target] = {1000: at_most(0.7), 5000: at_most(0.2)}
# A server that stalls must not stop the timetable.
_UNBOUNDED = replace(ONE_RECORD, in_flight=20_000)


def run(bench: Bench) -> list[Row]:
    rows: list[Row] = []
    for rate in (1000, 5000):
        rows += _rows(bench, f"ack at {rate}/s", rate, _TARGETS[rate], _to_ack)
    for rate in (1000, 5000):
        rows += _rows(bench, f"end to end at {rate}/s", rate, None, _to_consumer)
    return rows


def _rows(bench: Bench, name: str, rate: int, target: Target | None, measure: Measure) -> list[Row]:
    found = bench.compare(name, lambda broker: measure(bench, broker, rate))
    return [
        Row(PART, f"{name}, p50", "us", *found.values(lambda one: one.p50_us)),
        Row(PART, f"{name}, p99", "us", *found.values(lambda one: one.p99_us), target),
        Row(PART, f"{name}, p99.9", "us", *found.values(lambda one: one.p999_us)),
    ]


def _to_ack(bench: Bench, broker: Broker, rate: int) -> Replayed:
    with bench.topic(broker) as topic:
        requests = int(rate * bench.round_seconds * 2)
        return produce(
            bench, broker, topic, _UNBOUNDED, "--rate", str(rate), requests=requests
        ).replayed


def _to_consumer(bench: Bench, broker: Broker, rate: int) -> Replayed:
    with bench.topic(broker) as topic:
        load = frames.produce_load(topic, [ONE_RECORD.batch()], acks=1)
        fetch = frames.Load(
            [frames.fetch_frame(topic, offset=0, max_bytes=1 << 20, min_bytes=1, wait_ms=500)], []
        )
        produce_path, fetch_path = bench.path("produce.frames"), bench.path("fetch.frames")
        write_frames(load, produce_path)
        write_frames(fetch, fetch_path)
        return replay(
            broker.port,
            produce_path,
            load,
            *("--follow", str(fetch_path), "--rate", str(rate), "--in-flight", "20000"),
            *("--requests", str(int(rate * bench.round_seconds * 2)), "--first-offset", "0"),
            *("--offset-at", str(frames.fetch_offset_at(topic))),
            *("--records-at", str(frames.fetch_records_at(topic))),
        )
