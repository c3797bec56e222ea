"""What a broker knows when a test has failed, as text for a person."""

from millstream.testing.broker import Broker
from millstream.testing.cluster import Cluster
from millstream.testing.kafka import Kafka

_REQUESTS_SHOWN = 20
_TOPICS_SHOWN = 20


def describe(kafka: Kafka) -> str:
    lines = [f"broker at {kafka.bootstrap}"]
    try:
        lines += _topics(kafka)
        if isinstance(kafka, Broker | Cluster):
            lines += _requests(kafka)
    except Exception as failed:
        # The test's own failure matters more.
        lines.append(f"cannot be asked: {failed}")
    return "\n".join(lines)


def _topics(kafka: Kafka) -> list[str]:
    names = [name for name in kafka.topic_names() if not name.startswith("__")]
    lines = [f"{len(names)} topics; end offsets by partition:"]
    for name in names[:_TOPICS_SHOWN]:
        ends = kafka.topic(name).end_offsets()
        lines.append(f"  {name}: " + ", ".join(f"{index}: {end}" for index, end in ends.items()))
    return lines


def _requests(broker: Broker | Cluster) -> list[str]:
    seen = broker.requests()[-_REQUESTS_SHOWN:]
    lines = [f"the last {len(seen)} requests:"]
    lines += [
        f"  {one.api} {one.version} of {one.client_id or 'a client without id'}, "
        f"{one.size_bytes} bytes" + (f" ({one.fault})" if one.fault else "")
        for one in seen
    ]
    lines += [f"fault: {rule}" for rule in broker.faults.rules]
    return lines
