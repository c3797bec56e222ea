"""Another Kafka in the place of a test's broker: what a client can do with both."""

from collections.abc import Mapping
from typing import Any

from millstream.testing.client_config import Access, client_config
from millstream.testing.group import Group
from millstream.testing.topic import Topic

_REQUEST_SECONDS_MAX = 10.0


class ExternalKafka:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def client_config(self, kind: str = "confluent") -> dict[str, Any]:
        return client_config(kind, Access(self.bootstrap))

    def topic(self, name: str) -> Topic:
        return Topic(name, self.client_config())

    def group(self, group_id: str) -> Group:
        return Group(group_id, self.client_config())

    def create_topic(
        self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> Topic:
        from confluent_kafka.admin import NewTopic

        wanted = NewTopic(name, partitions, replication_factor=1, config=dict(configs or {}))
        # The client must outlive its answer.
        admin = self._admin()
        [answer] = admin.create_topics([wanted]).values()
        answer.result(_REQUEST_SECONDS_MAX)
        return self.topic(name)

    def delete_topic(self, name: str) -> None:
        admin = self._admin()
        [answer] = admin.delete_topics([name]).values()
        answer.result(_REQUEST_SECONDS_MAX)

    def topic_names(self) -> list[str]:
        return sorted(self._admin().list_topics(timeout=_REQUEST_SECONDS_MAX).topics)

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({**self.client_config(), "log_level": 0})
