"""Several instances as processes: one leads, all answer, and a kill loses nothing.

Covers registry/membership.py, registry/log.py, registry/forwarding.py, registry/election.py.
"""

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path

import pytest

from millstream.testing import Broker
from tests.support.apache_kafka import ApacheKafka
from tests.support.rest_client import Answer, RestClient

pytestmark = pytest.mark.slow

SECONDS_MAX = 60.0


class Instance:
    def __init__(self, bootstrap: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "millstream", "registry", "--listen", "127.0.0.1:0"]
            + ["-b", bootstrap],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().removeprefix("registry on ").strip()
        self.rest = RestClient(self.url)

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def end(self) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        self._process.wait(SECONDS_MAX)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def instances(bootstrap: str, count: int) -> Iterator[list[Instance]]:
    with ExitStack() as stack:
        running = []
        for _ in range(count):
            one = Instance(bootstrap)
            stack.callback(end_if_running, one)
            running.append(one)
        yield running


def end_if_running(one: Instance) -> None:
    if one._process.poll() is None:
        one.end()


def leader_of(running: list[Instance]) -> Instance:
    """A request that was passed on says whether the instance leads."""
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        for one in running:
            forwarded = {"X-Forward": "true"}
            answer = one.rest.send("PUT", "/mode/probe", {"mode": "READWRITE"}, forwarded)
            if answer.status == 200:
                return one
        time.sleep(0.1)
    raise AssertionError("no leader")


def retried(ask: Callable[[], Answer]) -> Answer:
    """As clients do when an instance has gone or knows no leader."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            answer = ask()
            if answer.status < 500:
                return answer
        except (urllib.error.URLError, OSError, HTTPException) as failed:
            answer = Answer(599, str(failed))
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)


def schema(name: str) -> str:
    return f'{{"type":"enum","name":"{name}","symbols":["A"]}}'


def check_ids(given: dict[str, int], rest: RestClient) -> None:
    """Every schema that was acknowledged is there under its id, and no id stands for two."""
    for name, schema_id in given.items():
        assert rest.get(f"/schemas/ids/{schema_id}").body["schema"] == schema(name)
    listed = rest.get("/schemas?deleted=true").body
    by_id: dict[int, str] = {}
    for one in listed:
        assert by_id.setdefault(one["id"], one["schema"]) == one["schema"]
    assert len(set(by_id.values())) == len(by_id)
    places = [(one["subject"], one["version"]) for one in listed]
    assert len(set(places)) == len(places)


def test_every_instance_answers_and_one_leads() -> None:
    with Broker() as broker, instances(broker.bootstrap, 3) as running:
        first = leader_of(running)
        followers = [one for one in running if one is not first]
        for number, one in enumerate([first, *followers], 1):
            made = retried(
                lambda one=one, number=number: one.rest.register(f"s{number}", schema(f"E{number}"))
            )
            assert made.body == {"id": number}
            # Who wrote through an instance can read it there.
            assert one.rest.get(f"/schemas/ids/{number}").status == 200
        assert followers[0].rest.put("/config/s1", {"compatibility": "NONE"}).status == 200
        assert followers[0].rest.get("/config/s1").body == {"compatibilityLevel": "NONE"}
        assert followers[1].rest.delete("/subjects/s1").body == [1]
        refused = followers[1].rest.put("/mode", {"mode": "odd"})
        assert (refused.status, refused.error_code) == (422, 42204)


def write_until(
    stop: threading.Event, running: list[Instance], name: str, given: dict[str, int]
) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        each = f"{name}{number}"

        def ask(each: str = each, turn: int = number) -> Answer:
            live = [one for one in running if one._process.poll() is None]
            return live[turn % len(live)].rest.register(f"subject-{name}", schema(each))

        given[each] = retried(ask).body["id"]


def test_no_id_is_lost_or_given_twice_when_leaders_are_killed() -> None:
    with Broker() as broker, instances(broker.bootstrap, 3) as running:
        leader_of(running)
        retried(lambda: running[0].rest.put("/config", {"compatibility": "NONE"}))
        stop = threading.Event()
        given: list[dict[str, int]] = [{}, {}]
        writers = [
            threading.Thread(target=write_until, args=(stop, running, f"W{index}x", found))
            for index, found in enumerate(given)
        ]
        for writer in writers:
            writer.start()
        left = list(running)
        try:
            for _ in range(2):
                killed = leader_of(left)
                count = sum(map(len, given))
                killed.end()
                left.remove(killed)
                deadline = time.monotonic() + SECONDS_MAX
                while sum(map(len, given)) < count + 10:
                    assert time.monotonic() < deadline, "no leader took over"
                    time.sleep(0.05)
        finally:
            stop.set()
            for writer in writers:
                writer.join(SECONDS_MAX)
        check_ids({**given[0], **given[1]}, left[0].rest)


def test_a_leader_that_was_frozen_cannot_write_any_more() -> None:
    with Broker() as broker, instances(broker.bootstrap, 2) as running:
        frozen = leader_of(running)
        [other] = [one for one in running if one is not frozen]
        assert frozen.rest.register("s", schema("Before")).body == {"id": 1}
        frozen.signal(signal.SIGSTOP)
        given = {"Before": 1}
        given["After"] = retried(lambda: other.rest.register("t", schema("After"))).body["id"]
        frozen.signal(signal.SIGCONT)
        # It may still believe that it leads: then its write fails, or it has learned the rest.
        for number in range(5):
            name = f"Again{number}"
            given[name] = retried(
                lambda name=name: frozen.rest.register("u" + name, schema(name))
            ).body["id"]
        assert len(set(given.values())) == len(given)
        check_ids(given, other.rest)


@pytest.mark.java
def test_apache_kafka_as_the_log(tmp_path: Path) -> None:
    with ApacheKafka(tmp_path / "kafka") as kafka, instances(kafka.bootstrap, 2) as running:
        leader = leader_of(running)
        [other] = [one for one in running if one is not leader]
        assert retried(lambda: other.rest.register("s", schema("E1"))).body == {"id": 1}
        leader.end()
        assert retried(lambda: other.rest.register("s2", schema("E2"))).body == {"id": 2}
        assert other.rest.get("/subjects").body == ["s", "s2"]
