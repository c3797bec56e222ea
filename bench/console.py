"""What the console costs: page times with many partitions, and a loaded node with open consoles.

    python -m bench.console [--partitions 10000] [--consoles 10] [--seconds 20]

A node runs with its console as users start them. The load is confluent-kafka, one producer with
acks=1 of records of 1 KB; open consoles are streams of live events that ask for the overview at
every sample, as a browser does. The cost is the node's processor time for each record, which other
programs on the machine disturb less than a rate. Prints JSON.
"""

import argparse
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

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


def get(served: Served, path: str) -> tuple[float, int]:
    """Seconds, and bytes of the answer."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection(served.netloc, timeout=_START_SECONDS_MAX)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status == 200, (path, answer.status)
    return time.perf_counter() - began, len(body)


class OpenConsole(threading.Thread):
    def __init__(self, served: Served) -> None:
        super().__init__(daemon=True)
        self._served = served
        self.is_over = False
        self.pages = 0

    def run(self) -> None:
        connection = http.client.HTTPConnection(self._served.netloc, timeout=60)
        connection.request("GET", "/live")
        stream = connection.getresponse()
        while not self.is_over:
            line = stream.readline()
            if line == b"event: sample\n":
                get(self._served, "/")
                self.pages += 1
            elif not line:
                return


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


def processor_seconds(served: Served) -> float:
    """Of the node so far."""
    fields = Path(f"/proc/{served.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def produce_measured(served: Served, seconds: float) -> tuple[float, float]:
    """Records each second, and the node's microseconds of processor for each record."""
    before, began = processor_seconds(served), time.perf_counter()
    rate = produce(served, seconds)
    records = rate * (time.perf_counter() - began)
    return rate, (processor_seconds(served) - before) / records * 1e6


def cost_of_consoles(served: Served, consoles: int, seconds: float) -> dict[str, float]:
    """Rounds with and without, in turn, so that the machine's moods hit both."""
    produce(served, 3)
    without, with_them = [], []
    for _ in range(4):
        without.append(produce_measured(served, seconds / 4))
        opened = [OpenConsole(served) for _ in range(consoles)]
        for each in opened:
            each.start()
        with_them.append(produce_measured(served, seconds / 4))
        for each in opened:
            each.is_over = True
    (rate, cost), (rate_with, cost_with) = (
        tuple(statistics.median(column) for column in zip(*rounds, strict=True))
        for rounds in (without, with_them)
    )
    return {
        "records_per_second_without": round(rate),
        "records_per_second_with": round(rate_with),
        "microseconds_per_record_without": round(cost, 2),
        "microseconds_per_record_with": round(cost_with, 2),
        "cost_percent": round(100 * (cost_with / cost - 1), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--consoles", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=40)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="console-bench-") as folder:
        served = start(folder)
        try:
            admin = AdminClient({"bootstrap.servers": served.bootstrap, "log_level": 0})
            [created] = admin.create_topics([NewTopic("load", 4, 1)]).values()
            created.result(_START_SECONDS_MAX)
            cost = cost_of_consoles(served, arguments.consoles, arguments.seconds)
            create_topics(served, arguments.partitions)
            # A sample with all of them.
            time.sleep(15)
            times = page_times(served)
        finally:
            served.process.send_signal(signal.SIGTERM)
            served.process.wait(60)
    print(json.dumps({"open consoles": cost, "pages": times}, indent=1))


if __name__ == "__main__":
    main()
