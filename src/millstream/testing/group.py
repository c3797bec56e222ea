"""A consumer group as a test sees it: how far behind it is."""

import time
from collections.abc import Mapping
from typing import Any

from millstream.testing.asking import answered

_REQUEST_SECONDS_MAX = 20.0


class Group:
    """`settings` are those of a confluent-kafka client."""

    def __init__(self, group_id: str, settings: Mapping[str, Any]) -> None:
        self.group_id = group_id
        self._settings = {**settings, "log_level": 0}

    def committed(self) -> dict[tuple[str, int], int]:
        """By topic and partition."""
        from confluent_kafka import ConsumerGroupTopicPartitions
        from confluent_kafka.admin import AdminClient

        wanted = [ConsumerGroupTopicPartitions(self.group_id)]
        # The client must outlive its answer.
        admin = AdminClient(self._settings)

        def ask() -> Any:
            [answer] = admin.list_consumer_group_offsets(wanted).values()
            return answer.result(_REQUEST_SECONDS_MAX).topic_partitions

        places = answered(ask)
        return {(place.topic, place.partition): place.offset for place in places}

    def lag(self) -> int:
        """Records that the group has not committed, in partitions of which it has committed."""
        return sum(self.lag_by_partition().values())

    def lag_by_partition(self) -> dict[tuple[str, int], int]:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient, OffsetSpec

        committed = self.committed()
        if not committed:
            return {}
        admin = AdminClient(self._settings)
        wanted = {TopicPartition(*place): OffsetSpec.latest() for place in committed}

        def ask() -> dict[tuple[str, int], int]:
            return {
                (place.topic, place.partition): answer.result(_REQUEST_SECONDS_MAX).offset
                for place, answer in admin.list_offsets(wanted).items()
            }

        found = answered(ask)
        return {place: found[place] - offset for place, offset in committed.items()}

    def wait_caught_up(self, *, timeout: float = 10) -> None:
        """Until the group has committed everything. Raises TimeoutError, which shows the lag."""
        deadline = time.monotonic() + timeout
        while True:
            lag = self.lag_by_partition()
            if lag and not any(lag.values()):
                return
            if time.monotonic() > deadline:
                behind = ", ".join(
                    f"{topic}/{index}: {count}" for (topic, index), count in lag.items() if count
                )
                raise TimeoutError(
                    f"group {self.group_id} has not caught up after {timeout} s: "
                    + (behind or "it has committed nothing")
                )
            time.sleep(0.02)
