from collections.abc import Iterator

import pytest

from millstream.broker.coordination import creation_quota
from millstream.broker.coordination.creation_quota import AT_ONCE_MAX, PER_SECOND, CreationQuota
from millstream.errors import KafkaCode, KafkaError
from millstream.wire.apis.find_coordinator import FindCoordinatorRequest
from millstream.wire.apis.init_producer_id import InitProducerIdRequest
from millstream.wire.apis.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitTopic,
)
from tests.broker.handlers.test_groups import commit, find_coordinator
from tests.support.broker import Broker
from tests.support.raw_client import RawClient

_FEW = 3


def is_admitted(quota: CreationQuota, address: str, *, now_ms: int) -> bool:
    try:
        quota.admit(address, now_ms=now_ms)
    except KafkaError as error:
        return error.code is not KafkaCode.THROTTLING_QUOTA_EXCEEDED
    return True


def used_up(*, now_ms: int) -> CreationQuota:
    quota = CreationQuota()
    for _ in range(AT_ONCE_MAX):
        assert is_admitted(quota, "a", now_ms=now_ms)
    return quota


def test_an_address_that_has_begun_many_waits() -> None:
    quota = used_up(now_ms=5_000)
    assert not is_admitted(quota, "a", now_ms=5_000)
    assert is_admitted(quota, "b", now_ms=5_000)


def test_time_earns_more() -> None:
    quota = used_up(now_ms=0)
    admitted = [is_admitted(quota, "a", now_ms=1_000) for _ in range(PER_SECOND + 1)]
    assert admitted == [True] * PER_SECOND + [False]


def test_long_names_count_several_times() -> None:
    quota = CreationQuota()
    longest = "x" * 0x7FFF
    admitted = 0
    with pytest.raises(KafkaError):
        while admitted < AT_ONCE_MAX:
            quota.admit("a", longest, now_ms=0)
            admitted += 1
    assert admitted * len(longest) <= AT_ONCE_MAX * 256


def test_addresses_that_owe_nothing_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creation_quota, "_CLIENTS_KEPT", 2)
    quota = used_up(now_ms=0)
    for number, address in enumerate(["b", "c", "d"]):
        assert is_admitted(quota, address, now_ms=1_000 * number)
    assert not all(is_admitted(quota, "a", now_ms=2_000) for _ in range(2 * PER_SECOND + 1))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[RawClient]:
    monkeypatch.setattr(creation_quota, "AT_ONCE_MAX", _FEW)
    monkeypatch.setattr(creation_quota, "PER_SECOND", 0.001)
    with Broker(topics={"orders": 3}) as broker, RawClient(broker.bootstrap) as connected:
        find_coordinator(connected)
        yield connected


def new_producer(client: RawClient, transactional_id: str | None) -> int:
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=1000,
        producer_id=-1,
        producer_epoch=-1,
    )
    return client.ask(request, 4).error_code


def test_groups_are_counted_once(client: RawClient) -> None:
    for number in range(_FEW):
        for offset in range(2):
            assert commit(client, f"group-{number}", offset) == KafkaCode.NONE
    assert commit(client, "one-more", 1) == KafkaCode.THROTTLING_QUOTA_EXCEEDED
    assert commit(client, "group-0", 9) == KafkaCode.NONE


def test_transactional_ids_are_counted_once(client: RawClient) -> None:
    client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["0"]), 4)
    for number in range(_FEW):
        for _ in range(2):
            assert new_producer(client, str(number)) == KafkaCode.NONE
    assert new_producer(client, "one-more") == KafkaCode.THROTTLING_QUOTA_EXCEEDED
    assert new_producer(client, "0") == KafkaCode.NONE


def test_of_long_names_fewer_may_be_begun(client: RawClient) -> None:
    client.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["0"]), 4)
    longer = 1 + _FEW * 256
    assert new_producer(client, "x" * longer) == KafkaCode.THROTTLING_QUOTA_EXCEEDED
    assert commit(client, "x" * longer, 1) == KafkaCode.THROTTLING_QUOTA_EXCEEDED
    assert commit(client, "group", 1) == KafkaCode.NONE


def test_producer_ids_are_counted(client: RawClient) -> None:
    codes = [new_producer(client, None) for _ in range(_FEW + 1)]
    assert codes == [KafkaCode.NONE] * _FEW + [KafkaCode.THROTTLING_QUOTA_EXCEEDED]


def commit_metadata(
    client: RawClient, partitions: int, length: int, *, version: int = 6
) -> list[int]:
    rows = [
        OffsetCommitPartition(
            partition_index=i, committed_offset=1, committed_metadata="m" * length
        )
        for i in range(partitions)
    ]
    topics = [OffsetCommitTopic(name="orders", partitions=rows)]
    request = OffsetCommitRequest(group_id="group", topics=topics)
    [answered] = client.ask(request, version).topics
    return [row.error_code for row in answered.partitions]


def test_only_longer_metadata_of_offsets_is_counted(client: RawClient) -> None:
    """Of the three that may be begun, the group is one."""
    for _ in range(5):
        assert commit_metadata(client, 2, 4000) == [KafkaCode.NONE] * 2
    assert commit_metadata(client, 3, 4000) == [KafkaCode.THROTTLING_QUOTA_EXCEEDED] * 3
    assert commit_metadata(client, 3, 10) == [KafkaCode.NONE] * 3


def test_longer_metadata_is_counted_in_repeated_commits(client: RawClient) -> None:
    for _ in range(4):
        assert commit_metadata(client, 2, 4000, version=8) == [KafkaCode.NONE] * 2
    assert commit_metadata(client, 2, 10, version=8) == [KafkaCode.NONE] * 2
    refused = [KafkaCode.THROTTLING_QUOTA_EXCEEDED] * 2
    assert commit_metadata(client, 2, 4000, version=8) == refused


def test_metadata_that_is_too_long_to_be_kept_is_not_counted(client: RawClient) -> None:
    assert commit_metadata(client, 1, 10) == [KafkaCode.NONE]
    for _ in range(5):
        assert commit_metadata(client, 3, 5000) == [KafkaCode.OFFSET_METADATA_TOO_LARGE] * 3
    assert commit_metadata(client, 2, 4000) == [KafkaCode.NONE] * 2
