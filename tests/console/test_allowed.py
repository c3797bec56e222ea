"""A node whose authorizer allows the console's user one topic only."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.console_node import ConsoleNode

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ConsoleNode]:
    """The console's user is nobody special once the super user is taken away."""
    with ConsoleNode(tmp_path, settings=SETTINGS) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
        [created] = admin.create_topics([NewTopic("secret", 1, 1)]).values()
        created.result(30)
        producer = Producer({"bootstrap.servers": running.bootstrap, "log_level": 0})
        producer.produce("secret", b"classified", partition=0)
        assert producer.flush(30) == 0
        running.sample()
        yield running


def test_a_user_with_all_permissions_sees_the_files(node: ConsoleNode) -> None:
    web = node.browser
    assert web.get("/topics/secret/storage").status == 200
    assert web.get("/topics/secret/batch?offset=0").status == 200
    assert web.get("/clients").status == 200
    assert "millstream_segments" in web.get("/metrics").text


def test_what_the_user_may_not_read_is_not_read_from_memory_either(node: ConsoleNode) -> None:
    assert node.node is not None
    web, permissions = node.browser, node.node.services.permissions
    authorizer = permissions.authorizer
    assert authorizer is not None

    class Refusing:
        """Everything else is as the real one says."""

        def __getattr__(self, name: str) -> object:
            return getattr(authorizer, name)

        def is_allowed(self, *arguments: object, **named: object) -> bool:
            return False

    node.loop.call_soon_threadsafe(permissions.use, Refusing())
    for path in (
        "/topics/secret/storage",
        "/topics/secret/batch?offset=0",
        "/clients",
        "/clients/x",
        "/metrics",
    ):
        answer = web.get(path)
        assert answer.status == 403, (path, answer.text)
        assert "classified" not in answer.text
