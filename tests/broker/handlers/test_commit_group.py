"""Covers broker/handlers/commit_group.py, broker/handlers/last_batch.py."""

import pytest

from millstream.broker.coordination import creation_quota
from millstream.errors import KafkaCode
from millstream.wire.apis.commit_group import CommitGroupRequest
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.last_batch import LastBatchRequest
from tests.support.broker import Broker
from tests.support.raw_client import RawClient


def test_a_client_begins_so_many_groups_at_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RawClient(broker.bootstrap) as client:
        client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["g"]), 4)

        def commit(group: str) -> int:
            request = CommitGroupRequest(group=group, run="", batch=0, members=[])
            return int(client.ask(request, 0).error_code)

        def take_over(group: str, run: str) -> int:
            return int(client.ask(LastBatchRequest(group=group, run=run), 0).error_code)

        assert commit("committed") == KafkaCode.NONE
        assert take_over("taken over", "r1") == KafkaCode.NONE
        monkeypatch.setattr(creation_quota, "AT_ONCE_MAX", 0)
        assert commit("another") == KafkaCode.THROTTLING_QUOTA_EXCEEDED
        assert take_over("another", "r1") == KafkaCode.THROTTLING_QUOTA_EXCEEDED
        # It exists already, or nothing is kept of the question.
        assert commit("committed") == KafkaCode.NONE
        assert take_over("taken over", "r2") == KafkaCode.NONE
        assert take_over("another", "") == KafkaCode.NONE
