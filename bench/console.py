"""What the console costs: page times with many partitions, and a loaded node with open consoles.

    python -m bench.console [--partitions 10000] [--consoles 10] [--seconds 20]

A node runs with its console as users start them. The load is confluent-kafka, one producer with
acks=1 of records of 1 KB; open consoles are streams of live events that ask for the overview at
every sample, as a browser does. They read in another process, so that the load does not wait for
them. The cost is what is lost of the rate, in rounds with and without consoles by turns, and the
node's processor time for each record, which other programs on the machine disturb less. Prints
JSON.
"""

import argparse
import http.client
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.brokers import cpu_seconds_of

_START_SECONDS_MAX = 120
_PAGES = ("/", "/topics", "/topics?sort=bytes&page=5", "/groups", "/nodes", "/metrics")
_VALUE = b"x" * 1024
_PARTITIONS_PER_TOPIC = 10


@dataclass
class Served:
    process: "subprocess.Popen[str]"
    bootstrap: str
    netloc: str


def start(folder: str) -> Served:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "millstream", "broker", "--data-dir", folder),
            *("--listen", "127.0.0.1:0", "--console", "127.0.0.1:0"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    bootstrap = process.stdout.readline().removeprefix("listening on ").strip()
    url = process.stdout.readline().removeprefix("console on ").strip()
    return Served(process, bootstrap, urlsplit(url).netloc)


def create_topics(served: Served, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": served.bootstrap, "log_level": 0})
    names = [f"topic-{number:05d}" for number in range(partitions // _PARTITIONS_PER_TOPIC)]
    for first in range(0, len(names), 100):
        wanted = [NewTopic(name, _PARTITIONS_PER_TOPIC, 1) for name in names[first : first + 100]]
        for created in admin.create_topics(wanted, request_timeout=60).values():
            created.result(_START_SECONDS_MAX)


def fetch(netloc: str, path: str) -> bytes:
    connection = http.client.HTTPConnection(netloc, timeout=_START_SECONDS_MAX)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status == 200, (path, answer.status)
    return body


def get(served: Served, path: str) -> tuple[float, int]:
    """Seconds, and bytes of the answer."""
    began = time.perf_counter()
    body = fetch(served.netloc, path)
    return time.perf_counter() - began, len(body)


def wait_sampled(served: Served, partitions: int) -> None:
    """Until the console has read all partitions."""
    ends_at = time.perf_counter() + _START_SECONDS_MAX
    while time.perf_counter() < ends_at:
        if json.loads(fetch(served.netloc, "/api/v1/overview"))["partition_count"] >= partitions:
            return
        time.sleep(0.2)
    raise TimeoutError(f"the console has not seen {partitions} partitions")


class OpenConsole(threading.Thread):
    def __init__(self, netloc: str) -> None:
        super().__init__(daemon=True)
        self._netloc = netloc
        self.is_open = threading.Event()

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._netloc, timeout=60)
        connection.request("GET", "/live")
        stream = connection.getresponse()
        while line := stream.readline():
            self.is_open.set()
            if line == b"event: sample\n":
                fetch(self._netloc, "/")


def keep_open(netloc: str, consoles: int) -> None:
    """The process of the open consoles, until its input ends."""
    opened = [OpenConsole(netloc) for _ in range(consoles)]
    for each in opened:
        each.start()
    for each in opened:
        assert each.is_open.wait(_START_SECONDS_MAX)
    print("open", flush=True)
    sys.stdin.read()


@contextmanager
def open_consoles(served: Served, consoles: int) -> Iterator[None]:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "bench.console",
            "--open",
            served.netloc,
            "--consoles",
            f"{consoles}",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "open\n"
        yield
    finally:
        process.stdin.close()
        process.wait(60)


def produce(served: Served, seconds: float) -> float:
    """Records acknowledged each second."""
    done = 0

    def acknowledged(error: object, message: object) -> None:
        nonlocal done
        done += error is None

    producer = Producer(
        {
            "bootstrap.servers": served.bootstrap,
            "acks": 1,
            "linger.ms": 5,
            "queue.buffering.max.messages": 20_000,
        }
    )
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        try:
            producer.produce("load", _VALUE, on_delivery=acknowledged)
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
    producer.flush(60)
    return done / (time.perf_counter() - began)


def page_times(served: Served) -> dict[str, dict[str, float]]:
    found = {}
    for path in _PAGES:
        get(served, path)
        times = [get(served, path) for _ in range(7)]
        found[path] = {
            "median_ms": round(statistics.median(seconds for seconds, _ in times) * 1000, 1),
            "worst_ms": round(max(seconds for seconds, _ in times) * 1000, 1),
            "kilobytes": round(times[0][1] / 1000),
        }
    return found


def produce_measured(served: Served, seconds: float) -> tuple[float, float]:
    """Records each second, and the node's microseconds of processor for each record."""
    before, began = cpu_seconds_of(served.process.pid), time.perf_counter()
    rate = produce(served, seconds)
    records = rate * (time.perf_counter() - began)
    return rate, (cpu_seconds_of(served.process.pid) - before) / records * 1e6


def cost_of_consoles(served: Served, consoles: int, seconds: float) -> dict[str, float]:
    """Rounds with and without, in turn, so that the machine's moods hit both."""
    produce(served, 3)
    without, with_them = [], []
    for _ in range(4):
        without.append(produce_measured(served, seconds / 4))
        with open_consoles(served, consoles):
            with_them.append(produce_measured(served, seconds / 4))
    (rate, cost), (rate_with, cost_with) = (
        tuple(statistics.median(column) for column in zip(*rounds, strict=True))
        for rounds in (without, with_them)
    )
    return {
        "records_per_second_without": round(rate),
        "records_per_second_with": round(rate_with),
        "microseconds_per_record_without": round(cost, 2),
        "microseconds_per_record_with": round(cost_with, 2),
        "throughput_lost_percent": round(100 * (1 - rate_with / rate), 1),
        "processor_time_added_percent": round(100 * (cost_with / cost - 1), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--consoles", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--open", metavar="NETLOC", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.open is not None:
        keep_open(arguments.open, arguments.consoles)
        return
    with tempfile.TemporaryDirectory(prefix="console-bench-") as folder:
        served = start(folder)
        try:
            admin = AdminClient({"bootstrap.servers": served.bootstrap, "log_level": 0})
            [created] = admin.create_topics([NewTopic("load", 4, 1)]).values()
            created.result(_START_SECONDS_MAX)
            cost = cost_of_consoles(served, arguments.consoles, arguments.seconds)
            create_topics(served, arguments.partitions)
            wait_sampled(served, arguments.partitions)
            times = page_times(served)
        finally:
            served.process.send_signal(signal.SIGTERM)
            served.process.wait(60)
    print(json.dumps({"open consoles": cost, "pages": times}, indent=1))


if __name__ == "__main__":
    main()
