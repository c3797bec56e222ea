"""What a test can do with any Kafka: one broker, a cluster, or somebody else's."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from millstream.testing.client_config import Access, client_config
from millstream.testing.group import Group
from millstream.testing.topic import Topic

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

REQUEST_SECONDS_MAX: Final = 20.0
_LIST_SECONDS_MAX: Final = 5.0


class Kafka:
    """`bootstrap` is an address, or several with commas between them."""

    def __init__(self, bootstrap: str = "") -> None:
        self.bootstrap = bootstrap
        self._admin: AdminClient | None = None

    def _access(self) -> Access:
        return Access(self.bootstrap)

    def client_config(self, kind: str = "confluent") -> dict[str, Any]:
        """For `confluent`, `kafka-python`, `aiokafka`, `java` or `spark`."""
        return client_config(kind, self._access())

    def topic(self, name: str) -> Topic:
        return Topic(name, self.client_config())

    def group(self, group_id: str) -> Group:
        return Group(group_id, self.client_config())

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> Topic:
        """With the default number of replicas, unless `replicas` is given."""
        from confluent_kafka.admin import NewTopic

        wanted = NewTopic(name, partitions, replicas, config=dict(configs or {}))
        [answer] = self._connect_admin().create_topics([wanted]).values()
        answer.result(REQUEST_SECONDS_MAX)
        return self.topic(name)

    def delete_topic(self, name: str) -> None:
        [answer] = self._connect_admin().delete_topics([name]).values()
        answer.result(REQUEST_SECONDS_MAX)

    def topic_names(self) -> list[str]:
        return sorted(self._connect_admin().list_topics(timeout=REQUEST_SECONDS_MAX).topics)

    def group_states(self) -> dict[str, str]:
        """The state of every group, by its id."""
        # All brokers are asked: one that is dead must not keep the others' answers.
        asked = self._connect_admin().list_consumer_groups(request_timeout=_LIST_SECONDS_MAX)
        listed = asked.result(REQUEST_SECONDS_MAX)
        return {one.group_id: one.state.name for one in listed.valid}

    def _create_missing_topics(self, topics: Mapping[str, int]) -> None:
        if topics:
            known = self.topic_names()
            for name, partitions in topics.items():
                if name not in known:
                    self.create_topic(name, partitions=partitions)

    def _connect_admin(self) -> "AdminClient":
        # Imported late: a test that brings its own client need not wait for this one.
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient({**self.client_config(), "log_level": 0})
        return self._admin
