from collections.abc import Callable

import pytest

from millstream.broker.requests.transaction_codes import (
    add_offsets_code,
    add_partitions_code,
    end_txn_code,
    init_producer_id_code,
    offset_commit_code,
    produce_code,
)
from millstream.errors import KafkaCode

CodeFor = Callable[[KafkaCode, int], KafkaCode]


@pytest.mark.parametrize(
    ("code_for", "since"),
    [
        (init_producer_id_code, 4),
        (add_partitions_code, 2),
        (add_offsets_code, 2),
        (end_txn_code, 2),
    ],
)
def test_a_fenced_producer_is_told_so_by_versions_that_know_the_error(
    code_for: CodeFor, since: int
) -> None:
    assert code_for(KafkaCode.PRODUCER_FENCED, since) is KafkaCode.PRODUCER_FENCED
    assert code_for(KafkaCode.PRODUCER_FENCED, since - 1) is KafkaCode.INVALID_PRODUCER_EPOCH
    assert code_for(KafkaCode.NOT_COORDINATOR, since - 1) is KafkaCode.NOT_COORDINATOR


@pytest.mark.parametrize(("code_for", "newest"), [(produce_code, 13), (offset_commit_code, 5)])
def test_writes_of_a_fenced_producer_have_an_invalid_epoch(code_for: CodeFor, newest: int) -> None:
    for version in (0, newest):
        assert code_for(KafkaCode.PRODUCER_FENCED, version) is KafkaCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("code_for", "since"),
    [(produce_code, 11), (offset_commit_code, 4), (add_partitions_code, 5)],
)
def test_versions_before_transaction_abortable(code_for: CodeFor, since: int) -> None:
    assert code_for(KafkaCode.TRANSACTION_ABORTABLE, since) is KafkaCode.TRANSACTION_ABORTABLE
    assert code_for(KafkaCode.TRANSACTION_ABORTABLE, since - 1) is KafkaCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("code_for", "since", "before"),
    [
        (produce_code, 12, KafkaCode.NOT_ENOUGH_REPLICAS),
        (offset_commit_code, 5, KafkaCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_a_transaction_that_is_ending_is_retried_by_every_version(
    code_for: CodeFor, since: int, before: KafkaCode
) -> None:
    assert code_for(KafkaCode.CONCURRENT_TRANSACTIONS, since) is KafkaCode.CONCURRENT_TRANSACTIONS
    assert code_for(KafkaCode.CONCURRENT_TRANSACTIONS, since - 1) is before


def test_producers_retry_while_the_coordinator_cannot_say() -> None:
    assert produce_code(KafkaCode.NOT_COORDINATOR, 12) is KafkaCode.NOT_ENOUGH_REPLICAS
