"""Members of a group in a process of their own, told by lines what to do.

    python -m tests.interop.groups.members KIND BOOTSTRAP GROUP TOPIC

Reads `add NAME`, `subscribe NAME TOPIC ...`, `leave NAME` and `stop`; prints one JSON line
when a member gets or gives up partitions, with the machine's monotonic time: taken before
the client is told that a partition is given up, and after it was told that it has one. So
the times of different processes can be compared.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any, Protocol

SESSION_MS = 3_000
HEARTBEAT_MS = 300
_printing = threading.Lock()


def report(member: str, event: str, partitions: Iterable[Any]) -> None:
    line = {
        "at_ns": time.monotonic_ns(),
        "member": member,
        "event": event,
        "partitions": sorted(f"{each.topic}-{each.partition}" for each in partitions),
    }
    with _printing:
        print(json.dumps(line), flush=True)


class Member(Protocol):
    def subscribe(self, topics: list[str]) -> None:
        """From the next poll on, read these topics."""
        ...

    def leave(self) -> None: ...


class Wish:
    """What a member shall subscribe to; taken by the thread that polls."""

    def __init__(self) -> None:
        self._topics: SimpleQueue[list[str]] = SimpleQueue()

    def put(self, topics: list[str]) -> None:
        self._topics.put(topics)

    def take(self) -> list[str] | None:
        try:
            return self._topics.get_nowait()
        except Empty:
            return None


class ConfluentMember:
    def __init__(self, name: str, bootstrap: str, group: str, topic: str, **options: Any) -> None:
        from confluent_kafka import Consumer

        is_classic = options.get("group.protocol") != "consumer"
        timeouts = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            "topic.metadata.refresh.interval.ms": 500,
            **(timeouts if is_classic else {}),
            **options,
        }
        self._name = name
        self._consumer = Consumer(settings)
        self._wish = Wish()
        self.subscribe([topic])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def subscribe(self, topics: list[str]) -> None:
        self._wish.put(topics)

    def _run(self) -> None:
        name = self._name
        while not self._stop.is_set():
            topics = self._wish.take()
            if topics is not None:
                self._consumer.subscribe(
                    topics,
                    on_assign=lambda consumer, partitions: report(name, "assign", partitions),
                    on_revoke=lambda consumer, partitions: report(name, "revoke", partitions),
                    on_lost=lambda consumer, partitions: report(name, "lost", partitions),
                )
            self._consumer.poll(0.1)
        self._consumer.close()

    def leave(self) -> None:
        self._stop.set()
        self._thread.join()


class KafkaPythonMember:
    def __init__(self, name: str, bootstrap: str, group: str, topic: str) -> None:
        from kafka import KafkaConsumer
        from kafka.consumer.subscription_state import ConsumerRebalanceListener

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
            def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                report(name, "revoke", revoked)

            def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                report(name, "assign", assigned)

            def on_partitions_lost(self, lost: Iterable[Any]) -> None:
                report(name, "lost", lost)

        self._name = name
        self._consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=name,
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=500,
        )
        self._listener = Listener()
        self._consumer.subscribe([topic], listener=self._listener)
        self._wish = Wish()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def subscribe(self, topics: list[str]) -> None:
        self._wish.put(topics)

    def _run(self) -> None:
        while not self._stop.is_set():
            topics = self._wish.take()
            if topics is not None:
                self._consumer.subscribe(topics, listener=self._listener)
            # Long, because kafka-python 3.0 forgets a join that it began when the topic grew
            # if the poll ends meanwhile: see docs/groups.md.
            self._consumer.poll(timeout_ms=1000)
            self._remember_join()
        self._consumer.close()

    def _remember_join(self) -> None:
        """On a busy machine a join takes so long that such a poll, too, may end meanwhile. What
        the group answered is then in a task that no later poll looks at."""
        coordinator = self._consumer._coordinator
        task = coordinator._join_task
        if task is not None and task.is_done and not coordinator.need_rejoin():
            print(f"{self._name} has forgotten its join", file=sys.stderr, flush=True)
            coordinator.request_rejoin()

    def leave(self) -> None:
        self._stop.set()
        self._thread.join()


class AioKafkaMember:
    """An event loop in a thread: the other members have threads too."""

    def __init__(self, name: str, bootstrap: str, group: str, topic: str) -> None:
        self._arguments = (name, bootstrap, group, topic)
        self._wish = Wish()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()

    def subscribe(self, topics: list[str]) -> None:
        self._wish.put(topics)

    async def _run(self) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.abc import ConsumerRebalanceListener

        name, bootstrap, group, topic = self._arguments

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
            def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                report(name, "revoke", revoked)

            def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                report(name, "assign", assigned)

        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=name,
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=500,
        )
        consumer.subscribe([topic], listener=Listener())
        await consumer.start()
        while not self._stop.is_set():
            topics = self._wish.take()
            if topics is not None:
                consumer.subscribe(topics, listener=Listener())
            await consumer.getmany(timeout_ms=100)
        report(name, "revoke", consumer.assignment())
        await consumer.stop()

    def leave(self) -> None:
        self._stop.set()
        self._thread.join()


def confluent(**options: Any) -> Callable[[str, str, str, str], Member]:
    return lambda name, bootstrap, group, topic: ConfluentMember(
        name, bootstrap, group, topic, **options
    )


KINDS: dict[str, Callable[[str, str, str, str], Member]] = {
    "confluent-eager": confluent(**{"partition.assignment.strategy": "range"}),
    "confluent-cooperative": confluent(**{"partition.assignment.strategy": "cooperative-sticky"}),
    # The timeouts that librdkafka has by itself, for benchmarks.
    "confluent-default": confluent(
        **{"session.timeout.ms": 45_000, "heartbeat.interval.ms": 3_000}
    ),
    "confluent-consumer": confluent(**{"group.protocol": "consumer"}),
    "kafka-python": KafkaPythonMember,
    "aiokafka": AioKafkaMember,
}


def main(kind: str, bootstrap: str, group: str, topic: str) -> None:
    members: dict[str, Member] = {}
    if kind.startswith("confluent"):
        import confluent_kafka  # noqa: F401  # now, not in the first member's time
    print("ready", flush=True)
    for line in sys.stdin:
        command, name, *topics = [*line.split(), ""]
        if command == "add":
            members[name] = KINDS[kind](name, bootstrap, group, topic)
        elif command == "subscribe":
            members[name].subscribe(topics[:-1])
        elif command == "leave":
            members.pop(name).leave()
        elif command == "stop":
            break
    for member in members.values():
        member.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
