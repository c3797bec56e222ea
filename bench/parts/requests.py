"""Small requests: one record each, pipelined over one connection, and one by one over many.

*bare loop* is a server on the same kind of event loop, in Python, that answers without looking
at what it gets. A node takes small produces of many clients together, in compiled code, and is
not bound by it.
"""

from dataclasses import replace

from bench import frames
from bench.bench import Bench
from bench.brokers import Broker
from bench.echo import echo_server
from bench.loads import ONE_RECORD, Produced, ProduceShape, produce
from bench.replay import replay, write_frames
from bench.rows import Row, at_least, at_most

PART = "requests"
# About what a produce to one partition is answered.
_ANSWER_BYTES = 70
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
        rows += _over(bench, connections)
    return rows


def _over(bench: Bench, connections: int) -> list[Row]:
    shape = replace(ONE_RECORD, in_flight=1, connections=connections)

    def measure(broker: Broker) -> Produced:
        with bench.topic(broker) as topic:
            return produce(bench, broker, topic, shape)

    found = bench.compare(f"round trips over {connections} connections", measure)
    target = at_least(2.5) if connections > 1 else None
    name = f"round trips over {connections} connection{'s' if connections > 1 else ''}"
    ours, kafka = found.values(lambda one: one.requests_per_second)
    bare = [_bare_loop(bench, shape) for _ in ours]
    return [
        Row(PART, name, "/s", ours, kafka, target),
        Row(PART, name, "/s", ours, bare, None, "bare loop"),
    ]


def _bare_loop(bench: Bench, shape: ProduceShape) -> float:
    """The same load on a server that does nothing but answer, one request at a time."""
    load = frames.produce_load("echo", [shape.batch()], acks=1)
    path = bench.path("echo.frames")
    write_frames(load, path)
    with echo_server(_ANSWER_BYTES) as port:
        bench.say(f"a bare loop over {shape.connections} connections")
        options = ("--in-flight", "1", "--connections", str(shape.connections))
        unchecked = frames.Load(load.frames, [])
        done = replay(port, path, unchecked, *options, "--seconds", str(bench.round_seconds))
    path.unlink()
    return done.requests / done.seconds
