"""Other people's clients as loads: Java's performance tools, kcat, and an admin client."""

import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.support.jars import classpath
from tests.support.tools import require, run_checked

_SECONDS_MAX = 300


def admin_client(bootstrap: str) -> AdminClient:
    # Brokers come and go in a benchmark; the client's remarks on that are no news.
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create_topic(bootstrap: str, name: str, *, partitions: int, config: Mapping[str, str]) -> None:
    admin = admin_client(bootstrap)
    topic = NewTopic(name, partitions, 1, config=dict(config))
    admin.create_topics([topic])[name].result(60)
    wait_for_leaders(bootstrap, partitions, only=name)
    wait_until_served(bootstrap, {name: partitions})


def wait_until_served(bootstrap: str, partitions: Mapping[str, int]) -> None:
    """Until all partitions answer for themselves: Kafka names a leader before it serves."""
    admin = admin_client(bootstrap)
    left = [TopicPartition(name, i) for name, count in partitions.items() for i in range(count)]
    deadline = time.monotonic() + _SECONDS_MAX
    while left:
        assert time.monotonic() < deadline, f"{len(left)} partitions are not served"
        answers = admin.list_offsets(
            {where: OffsetSpec.latest() for where in left}, request_timeout=60
        )
        left = [where for where, answer in answers.items() if answer.exception(60) is not None]
        if left:
            time.sleep(0.02)


def delete_topic(bootstrap: str, name: str) -> None:
    # The client must outlive its answer.
    admin = admin_client(bootstrap)
    admin.delete_topics([name])[name].result(60)


def wait_for_leaders(bootstrap: str, partitions: int, *, only: str | None = None) -> None:
    """Until this many partitions, of one topic or of all, have a leader."""
    admin = admin_client(bootstrap)
    deadline = time.monotonic() + _SECONDS_MAX
    while True:
        topics = admin.list_topics(topic=only, timeout=60).topics.values()
        led = sum(
            partition.leader >= 0 and partition.error is None
            for topic in topics
            for partition in topic.partitions.values()
        )
        if led >= partitions:
            return
        assert time.monotonic() < deadline, f"{led} of {partitions} partitions have a leader"
        time.sleep(0.02)


def java_produce(
    bootstrap: str, topic: str, *, records: int, record_bytes: int, **settings: str
) -> float:
    """Records per second of Kafka's ProducerPerformance, its first fifth left out."""
    properties = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
    output = run_checked(
        [
            *(require("java"), "-Xmx512M", "-cp", classpath()),
            *("org.apache.kafka.tools.ProducerPerformance", "--topic", topic),
            *("--num-records", str(records), "--record-size", str(record_bytes)),
            *("--throughput", "-1", "--warmup-records", str(records // 5)),
            *("--command-property", f"bootstrap.servers={bootstrap}", *properties),
        ],
        timeout_seconds=_SECONDS_MAX,
    )
    return parse_java_produce(output)


def parse_java_produce(output: str) -> float:
    """The rate in the last summary: that of the steady state where there was a warm-up."""
    found = re.findall(r"records sent, ([\d.]+) records/sec", output)
    assert found, f"no summary in:\n{output[-2000:]}"
    return float(found[-1])


def java_consume(bootstrap: str, topic: str, *, records: int) -> float:
    """Records per second of Kafka's ConsumerPerformance, joining its group left out."""
    output = run_checked(
        [
            *(require("java"), "-Xmx512M", "-cp", classpath()),
            *("org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", bootstrap),
            *("--topic", topic, "--num-records", str(records), "--hide-header"),
        ],
        timeout_seconds=_SECONDS_MAX,
    )
    return parse_java_consume(output)


def parse_java_consume(output: str) -> float:
    """The last of the ten columns: records per second of fetching."""
    lines = [line.split(", ") for line in output.splitlines() if line.count(", ") == 9]
    assert lines, f"no summary in:\n{output[-2000:]}"
    return float(lines[-1][-1])


def kcat_produce(
    bootstrap: str, topic: str, lines: Path, *, count: int, acks: str, options: Sequence[str] = ()
) -> float:
    """Records per second of kcat sending the lines of a file, start and end included."""
    began = time.perf_counter()
    run_checked(
        [
            *(require("kcat"), "-P", "-b", bootstrap, "-t", topic, "-p", "0", "-l", str(lines)),
            *("-X", f"acks={acks}", "-X", "queue.buffering.max.messages=1000000", *options),
        ],
        timeout_seconds=_SECONDS_MAX,
    )
    return count / (time.perf_counter() - began)


def kcat_consume(bootstrap: str, topic: str, *, count: int, options: Sequence[str] = ()) -> float:
    """Records per second of kcat reading a partition from its start, printing nothing."""
    began = time.perf_counter()
    subprocess.run(
        [
            *(require("kcat"), "-C", "-b", bootstrap, "-t", topic, "-p", "0", "-o", "beginning"),
            *("-c", str(count), "-q", "-f", ""),
            # Else the figure is that of the default queue limits of the client.
            *("-X", "fetch.message.max.bytes=4194304", "-X", "check.crcs=false", *options),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_SECONDS_MAX,
        check=True,
    )
    return count / (time.perf_counter() - began)
