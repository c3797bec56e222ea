"""What requests leave behind is free at once, and does not wait for a collection of all garbage.

Covers broker/handlers.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from millstream.broker.network.connection import Connection
from millstream.model import NO_TOPIC_ID
from millstream.storage.log import Log
from millstream.wire.apis.delete_topics import DeletableTopic, DeleteTopicsRequest
from millstream.wire.apis.metadata import MetadataRequest
from tests.broker.handlers.exchanges import batch, produce
from tests.support.attacks import ATTACKS, Aim, Attack, create_topic
from tests.support.broker import Broker
from tests.support.raw_client import RawClient

# Attacks that are refused, and how much of each is sent: less metadata would be accepted.
REFUSED = {"JoinGroup": 0.1, "Produce: 60": 0.01, "Produce: a million": 0.01, "ShareAck": 0.01}


@contextmanager
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def handlers_in_garbage() -> set[str]:
    """Those whose frames, and so all their variables, only a collection would free."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        frames = [each for each in gc.garbage if type(each).__name__ == "frame"]
        return {each.f_code.co_filename.rpartition("/")[2] for each in frames} - {"test_garbage.py"}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.parametrize(
    ("attack", "scale"),
    [
        pytest.param(each, scale, id=each.name)
        for each in ATTACKS
        for name, scale in REFUSED.items()
        if each.name.startswith(name)
    ],
)
def test_a_refused_request_is_freed_with_its_answer(
    broker: Broker, attack: Attack, scale: float
) -> None:
    # Once before: handlers and their errors are imported.
    for number in range(2):
        with no_collections():
            with RawClient(broker.bootstrap) as client:
                for data in attack.frames(client, Aim(f"g{number}", f"g{number}", scale)):
                    client.sock.sendall(data)
                    client.receive_frame()
                client.ask(MetadataRequest(topics=[]), 9)
            left = handlers_in_garbage()
    assert left == set()


def test_the_logs_of_a_deleted_topic_are_freed_with_it(broker: Broker) -> None:
    def count() -> int:
        return sum(isinstance(each, Log) for each in gc.get_objects())

    with RawClient(broker.bootstrap) as client, no_collections():
        before = count()
        create_topic(client, "large", 50)
        assert count() >= before + 50
        topic = DeletableTopic(name="large", topic_id=NO_TOPIC_ID)
        client.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=5000), 6)
        # Directories are renamed in turns of the loop; each of these requests is one more.
        for _ in range(50):
            client.ask(MetadataRequest(topics=[]), 9)
        assert count() == before


def test_closed_connections_and_what_they_wrote_to_are_freed_at_once(broker: Broker) -> None:
    """Repeated produces have a shortcut, which refers to the partition and its producers."""

    def count(kind: type) -> int:
        return sum(isinstance(each, kind) for each in gc.get_objects())

    [attack] = [each for each in ATTACKS if "invented producer ids" in each.name]
    with RawClient(broker.bootstrap) as other, no_collections():
        other.ask(MetadataRequest(topics=[]), 9)
        logs, connections = count(Log), count(Connection)
        with RawClient(broker.bootstrap) as client:
            for data in attack.frames(client, Aim("written", "g", 0.0005)):
                client.sock.sendall(data)
                client.receive_frame()
            assert count(Connection) == connections + 1
        topic = DeletableTopic(name="written", topic_id=NO_TOPIC_ID)
        other.ask(DeleteTopicsRequest(topics=[topic], timeout_ms=5000), 6)
        create_topic(other, "another")
        # Directories are renamed in turns of the loop. A produce forgets who may write to what.
        for _ in range(50):
            produce(other, "another", batch(b"a"))
        assert count(Connection) == connections
        assert count(Log) == logs + 1
