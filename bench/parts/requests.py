"""Small requests: one record each, pipelined over one connection, and one by one over many."""

from dataclasses import replace

from bench.bench import Bench
from bench.brokers import Broker
from bench.loads import ONE_RECORD, Produced, produce
from bench.rows import Row, at_least, at_most

PART = "requests"
_PIPELINED = replace(ONE_RECORD, in_flight=64)


def run(bench: Bench) -> list[Row]:
    def pipelined(broker: Broker) -> Produced:
        with bench.topic(broker) as topic:
            return produce(bench, broker, topic, _PIPELINED)

    found = bench.compare("one record a request, pipelined", pipelined)
    rates = found.values(lambda one: one.requests_per_second)
    cpu = found.values(lambda one: one.cpu_us_per_request)
    rows = [
        Row(PART, "one record a request, 64 in flight", "/s", *rates, at_least(5)),
        Row(PART, "one record a request, broker CPU", "us each", *cpu, at_most(0.2)),
    ]
    for connections in (1, 64, 512):
        rows.append(_over(bench, connections))
    return rows


def _over(bench: Bench, connections: int) -> Row:
    shape = replace(ONE_RECORD, in_flight=1, connections=connections)

    def measure(broker: Broker) -> Produced:
        with bench.topic(broker) as topic:
            return produce(bench, broker, topic, shape)

    found = bench.compare(f"round trips over {connections} connections", measure)
    target = at_least(2.5) if connections > 1 else None
    name = f"round trips over {connections} connection{'s' if connections > 1 else ''}"
    return Row(PART, name, "/s", *found.values(lambda one: one.requests_per_second), target)
