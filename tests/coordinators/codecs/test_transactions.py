"""Records of `__transaction_state`: both of Kafka's versions, and ours."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from millstream.coordinators.codecs.transactions import (
    BatchChange,
    CommittedBatch,
    StoredTransaction,
    TransactionChange,
    TransactionStatus,
    decode,
    encode,
)

INT64 = some.integers(-1, 2**63 - 1)
TRANSACTIONS = some.builds(
    StoredTransaction,
    producer_id=INT64,
    producer_epoch=some.integers(-1, 2**15 - 1),
    timeout_ms=some.integers(0, 2**31 - 1),
    status=some.sampled_from([one for one in TransactionStatus if one]),
    partitions=some.dictionaries(
        some.text(max_size=20), some.frozensets(some.integers(0, 2**31 - 1), max_size=4), max_size=4
    ),
    last_update_ms=INT64,
    start_ms=INT64,
    previous_producer_id=INT64,
    next_producer_id=INT64,
    client_version=some.integers(0, 2),
)


@given(some.text(max_size=50), TRANSACTIONS)
def test_a_transaction_comes_back_from_its_bytes(name: str, stored: StoredTransaction) -> None:
    change = TransactionChange(name, stored)
    assert decode(*encode(change)) == change


@pytest.mark.parametrize(
    "change",
    [
        TransactionChange("mill", None),
        TransactionChange("mill", StoredTransaction(7, 3, 60_000, last_update_ms=5)),
        BatchChange("query", CommittedBatch(9, 1_000)),
        BatchChange("query", CommittedBatch(-1, 1_000, "run 3", ("run 1", "run 2"))),
        BatchChange("query", None),
    ],
)
def test_tombstones_empty_ones_and_batches_come_back(
    change: TransactionChange | BatchChange,
) -> None:
    assert decode(*encode(change)) == change


def test_batches_that_name_no_run_are_read() -> None:
    key = encode(BatchChange("query", None))[0]
    value = bytes.fromhex("0000000000000000000900000000000003e8")
    assert decode(key, value) == BatchChange("query", CommittedBatch(9, 1_000))


KAFKA_KEY = bytes.fromhex("0000") + b"\x00\x04mill"


def test_version_0_of_older_brokers_is_read() -> None:
    value = bytes.fromhex(
        "0000"  # version
        "0000000000000007"  # producer id
        "0003"  # epoch
        "0000ea60"  # timeout
        "01"  # ongoing
        "00000001" + "000174" + "00000002" + "00000000" + "00000005"  # t: 0, 5
        "0000000000000064"  # last update
        "0000000000000032"  # start
    )
    assert decode(KAFKA_KEY, value) == TransactionChange(
        "mill",
        StoredTransaction(
            7, 3, 60_000, TransactionStatus.ONGOING, {"t": frozenset({0, 5})}, 100, 50
        ),
    )


def test_version_1_is_written_as_kafka_writes_it() -> None:
    stored = StoredTransaction(
        7,
        3,
        60_000,
        TransactionStatus.ONGOING,
        {"t": frozenset({5, 0})},
        100,
        50,
        previous_producer_id=6,
        client_version=2,
    )
    assert encode(TransactionChange("mill", stored)) == (
        KAFKA_KEY,
        bytes.fromhex(
            "0001"
            "0000000000000007"
            "0003"
            "0000ea60"
            "01"
            "02" + "0274" + "03" + "00000000" + "00000005" + "00"
            "0000000000000064"
            "0000000000000032"
            "02" + "0008" + "0000000000000006" + "0202" + "0002"
        ),
    )


def test_what_nobody_knows_is_skipped_and_what_is_broken_refused() -> None:
    assert decode(b"\x00\x09\x00\x01x", b"") is None
    with pytest.raises(ValueError, match="version 2"):
        decode(KAFKA_KEY, b"\x00\x02" + bytes(40))
    with pytest.raises(ValueError, match="wanted"):
        decode(KAFKA_KEY, b"\x00\x01\x00")
    with pytest.raises(ValueError, match="9"):
        decode(KAFKA_KEY, bytes.fromhex("0001" + "00" * 14 + "09"))
